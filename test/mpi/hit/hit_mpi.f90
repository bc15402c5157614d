! Each allreduce of a program that uses module mpi reaches tutti exactly once.
program hit
  use mpi
  implicit none
  integer, parameter :: n = 100
  integer(8), external :: hit_count
  integer(8) :: before
  double precision, asynchronous :: a(n), b(n)
  integer :: ierr, rank, nranks, faults
  integer :: dup, request
  include 'fortran_body.inc'
end program
