! Each allreduce of a program that uses module mpi_f08 reaches tutti exactly once.
program hit
  use mpi_f08
  implicit none
  integer, parameter :: n = 100
  integer(8), external :: hit_count
  integer(8) :: before
  double precision, asynchronous :: a(n), b(n)
  integer :: ierr, rank, nranks, faults
  type(MPI_Comm) :: dup
  type(MPI_Request) :: request
  include 'fortran_body.inc'
end program
