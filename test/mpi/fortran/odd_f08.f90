! Odd calls of a program that uses module mpi_f08.
module operations
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
contains
  subroutine add_all(from, to, n, type)
    type(c_ptr), value :: from, to
    integer :: n
    type(MPI_Datatype) :: type
    integer, pointer :: a(:), b(:)
    if (type /= MPI_INTEGER) error stop 2
    call c_f_pointer(from, a, [n])
    call c_f_pointer(to, b, [n])
    b = a + b
  end subroutine
  subroutine compose(from, to, n, type)
    type(c_ptr), value :: from, to
    integer :: n
    type(MPI_Datatype) :: type
    integer, pointer :: a(:, :), b(:, :)
    call c_f_pointer(from, a, [2, n])
    call c_f_pointer(to, b, [2, n])
    b(2, :) = mod(b(1, :) * a(2, :) + b(2, :), 10007)
    b(1, :) = mod(a(1, :) * b(1, :), 10007)
  end subroutine
end module
program odd
  use mpi_f08
#ifdef WITH_EXTENSIONS
  use mpi_f08_ext
#endif
  use operations
  implicit none
  integer :: ierr, rank, nranks, out, n, turn
  character(500) :: results
  type(MPI_Comm) :: comm
  type(MPI_Request) :: request, requests(4)
  type(MPI_Status) :: status, statuses(2)
  type(MPI_Datatype) :: type
  type(MPI_Op) :: op
#include "odd_body.inc"
end program
