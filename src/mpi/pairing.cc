#include "mpi/pairing.hpp"

#include <mpi.h>

#include <charconv>
#include <tuple>

#include "base/text.hpp"

namespace tutti::mpi {

namespace {

// "4.1.4..." into up to three numbers.
void read_numbers(std::string_view text, Release& release) {
  for (int* number : {&release.major, &release.minor, &release.patch}) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    if (error != std::errc() || end == text.data() + text.size() || *end != '.') return;
    text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  }
}

const char* name(Release::Family family) {
  switch (family) {
    case Release::Family::open_mpi:
      return "Open MPI";
    case Release::Family::mpich:
      return "MPICH";
    case Release::Family::other:
      break;
  }
  return "another MPI";
}

std::string describe(const Release& release) {
  return text("{} {}.{}.{}", name(release.family), release.major, release.minor, release.patch);
}

}  // namespace

Release read_release(std::string_view library_version) {
  Release release;
  for (auto [family, before] :
       {std::pair{Release::Family::open_mpi, std::string_view("Open MPI v")},
        std::pair{Release::Family::mpich, std::string_view("MPICH Version:")}}) {
    const size_t at = library_version.find(before);
    if (at == std::string_view::npos) continue;
    std::string_view rest = library_version.substr(at + before.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    release.family = family;
    read_numbers(rest, release);
    break;
  }
  return release;
}

Release built_with() {
#if defined(OMPI_MAJOR_VERSION)
  return {Release::Family::open_mpi, OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION};
#elif defined(MPICH_VERSION)
  Release release{Release::Family::mpich};
  read_numbers(MPICH_VERSION, release);
  return release;
#else
  return {};
#endif
}

bool has_standard_handles(int (*abi_get_version)(int*, int*)) {
  int major = -1;
  int minor = -1;
  // A library without them says so by a negative number.
  return abi_get_version != nullptr && abi_get_version(&major, &minor) == MPI_SUCCESS && major > 0;
}

bool built_with_standard_handles() {
#ifdef MPI_ABI_VERSION
  return true;
#else
  return false;
#endif
}

std::string misfit_of_handles() {
  return text(
      "this libtutti.so was built for the handles of {}, and the program runs on a library with "
      "{}; link the program "
      "with the MPI's own library",
      built_with_standard_handles() ? "MPI's standard binary interface" : "the MPI itself",
      built_with_standard_handles() ? "those of the MPI itself"
                                    : "those of MPI's standard binary interface (libmpi_abi)");
}

std::string misfit(const Release& built, const Release& running, std::string_view library_version) {
  // Of an MPI that says something else nothing is known; configure has let it pass.
  if (built.family == Release::Family::other) return {};
  if (built.family != running.family)
    return text(
        "this libtutti.so was built for {} and the program runs on \"{}\"; configure tutti with "
        "--with-mpi=DIR of that MPI",
        describe(built), library_version.substr(0, library_version.find('\n')));
  const auto numbers = [](const Release& release) {
    return std::tuple(release.major, release.minor);
  };
  if (numbers(built) <= numbers(running)) return {};
  return text(
      "this libtutti.so was built with {} and the program runs on {}, which is older; build tutti "
      "with the older one",
      describe(built), describe(running));
}

}  // namespace tutti::mpi
