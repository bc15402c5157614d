! Odd calls of a program that uses module mpi.
subroutine add_all(from, to, n, type)
  implicit none
  integer :: n, type, from(n), to(n)
  to = from + to
  if (type == 0 .and. n < 0) to = 0
end subroutine
subroutine compose(from, to, n, type)
  implicit none
  integer :: n, type, from(2, n), to(2, n)
  to(2, :) = mod(to(1, :) * from(2, :) + to(2, :), 10007)
  to(1, :) = mod(from(1, :) * to(1, :), 10007)
  if (type == 0 .and. n < 0) to = 0
end subroutine
program odd
  use mpi
#ifdef WITH_EXTENSIONS
  use mpi_ext
#endif
  implicit none
  integer :: ierr, rank, nranks, out, n, turn
  character(500) :: results
  integer :: comm, request, requests(4), type, op
  integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2)
  external :: add_all, compose
#include "odd_body.inc"
end program
