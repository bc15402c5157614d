// Whether the MPI of this process is one that this build of tutti may run on.
//
// Handles, constants and structures are compiled in from the MPI that tutti was built with. Open MPI and
// MPICH keep them for programs built with an older release of the same line, never for a newer one.
#pragma once

#include <string>
#include <string_view>

namespace tutti::mpi {

struct Release {
  enum class Family { open_mpi, mpich, other } family = Family::other;
  int major = 0;
  int minor = 0;
  int patch = 0;
};

// From what MPI_Get_library_version says: "Open MPI v4.1.4, package: ...", "MPICH Version: 4.0.2 ...".
Release read_release(std::string_view library_version);
// The one that tutti was built with.
Release built_with();

// Whether the library of this process has handles of the standard's binary interface (MPI 5), which are other
// numbers than those of the MPI itself. abi_get_version: its PMPI_Abi_get_version, or null.
bool has_standard_handles(int (*abi_get_version)(int*, int*));
// Whether this build of tutti has.
bool built_with_standard_handles();
// Why a build of one kind may not run on a library of the other.
std::string misfit_of_handles();

// Empty if `built` may run on `running`, else why not, and what to do.
std::string misfit(const Release& built, const Release& running, std::string_view library_version);

}  // namespace tutti::mpi
