! An ordinary Fortran program with the modern module.
program sum_example
  use mpi_f08
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  integer, parameter :: n = 8192
  integer :: rank, ranks, i, wrong
  real(real64) :: mine(n), total(n), expected(n)
  type(MPI_Request) :: request
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  mine = [(real(i, real64) * (rank + 1), i = 1, n)]
  expected = [(real(i, real64) * ranks * (ranks + 1) / 2, i = 1, n)]
  total = mine
  call MPI_Allreduce(MPI_IN_PLACE, total, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  wrong = count(total /= expected)
  call MPI_Iallreduce(mine, total, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  wrong = wrong + count(total /= expected)
  if (rank == 0) then
    print '(a,i0,a,i0,a,a)', 'Fortran: allreduce of ', n, ' doubles on ', ranks, ' ranks, ', &
      merge('right', 'WRONG', wrong == 0)
  end if
  call MPI_Finalize()
  if (wrong /= 0) stop 1
end program
