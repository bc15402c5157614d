// The ways in which a program may complete a request, by number.
#pragma once

#include <mpi.h>

// Completes a request in one of the ways that MPI has; persistent ones stay.
inline int complete(MPI_Request* request, int how) {
  int flag = 0;
  int index = 0;
  int count = 0;
  int rc = MPI_SUCCESS;
  switch (how) {
    case 0:
      return MPI_Wait(request, MPI_STATUS_IGNORE);
    case 1:
      while (flag == 0 && rc == MPI_SUCCESS) rc = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
      return rc;
    case 2:
      return MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE);
    case 3:
      return MPI_Waitall(1, request, MPI_STATUSES_IGNORE);
    case 4:
      return MPI_Waitsome(1, request, &count, &index, MPI_STATUSES_IGNORE);
    case 5:
      while (flag == 0 && rc == MPI_SUCCESS)
        rc = MPI_Testall(1, request, &flag, MPI_STATUSES_IGNORE);
      return rc;
    case 6:
      while (flag == 0 && rc == MPI_SUCCESS)
        rc = MPI_Testany(1, request, &index, &flag, MPI_STATUS_IGNORE);
      return rc;
    case 7:
      while (count == 0 && rc == MPI_SUCCESS)
        rc = MPI_Testsome(1, request, &count, &index, MPI_STATUSES_IGNORE);
      return rc;
    default:
      while (flag == 0 && rc == MPI_SUCCESS)
        rc = MPI_Request_get_status(*request, &flag, MPI_STATUS_IGNORE);
      return rc == MPI_SUCCESS ? MPI_Wait(request, MPI_STATUS_IGNORE) : rc;
  }
}

inline constexpr int completions = 9;
