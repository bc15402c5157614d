// What the MPI that tutti is built for has, told from its headers alone.
#pragma once

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

// Reductions of large-count form and with them all of MPI 4.
#if MPI_VERSION >= 4
#define TUTTI_MPI_LARGE_COUNT 1
#else
#define TUTTI_MPI_LARGE_COUNT 0
#endif

// MPI_X_init. Open MPI 5.0 has it, though it calls itself MPI 3.1.
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define TUTTI_MPI_PERSISTENT 1
#define TUTTI_MPI_IDUP_WITH_INFO 1
#else
#define TUTTI_MPI_PERSISTENT 0
#define TUTTI_MPI_IDUP_WITH_INFO 0
#endif

// MPIX_X_init: Open MPI 4's extension of that kind.
#if defined(OMPI_HAVE_MPI_EXT_PCOLLREQ) && !TUTTI_MPI_PERSISTENT
#define TUTTI_MPI_PCOLLREQ 1
#else
#define TUTTI_MPI_PCOLLREQ 0
#endif
