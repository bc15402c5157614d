c Each allreduce of a program with mpif.h reaches tutti exactly once and
c gives the same result as without it.
      program hit
      implicit none
      include 'mpif.h'
      integer n
      parameter (n = 100)
      integer*8 hit_count, before
      external hit_count
      double precision a(n), b(n)
      integer ierr, rank, nranks, request, faults
      faults = 0
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, nranks, ierr)
      before = hit_count()
      call fill(a, n, rank)
      call MPI_ALLREDUCE(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      call expect('plain', b, n, nranks, before, faults)
      before = hit_count()
      call fill(b, n, rank)
      call MPI_ALLREDUCE(MPI_IN_PLACE, b, n, MPI_DOUBLE_PRECISION,
     &                   MPI_SUM, MPI_COMM_WORLD, ierr)
      call expect('in place', b, n, nranks, before, faults)
      before = hit_count()
      call MPI_IALLREDUCE(a, b, n, MPI_DOUBLE_PRECISION, MPI_SUM,
     &                    MPI_COMM_WORLD, request, ierr)
      call MPI_WAIT(request, MPI_STATUS_IGNORE, ierr)
      call expect('nonblocking', b, n, nranks, before, faults)
      before = hit_count()
      call fill(b, n, rank)
      call MPI_IALLREDUCE(MPI_IN_PLACE, b, n, MPI_DOUBLE_PRECISION,
     &                    MPI_SUM, MPI_COMM_WORLD, request, ierr)
      call MPI_WAIT(request, MPI_STATUS_IGNORE, ierr)
      call expect('nonblocking in place', b, n, nranks, before, faults)
      call MPI_FINALIZE(ierr)
      if (faults .ne. 0) stop 1
      end

      subroutine fill(a, n, rank)
      integer n, rank, i
      double precision a(n)
      do i = 1, n
        a(i) = rank + i
      end do
      end

      subroutine expect(what, b, n, nranks, before, faults)
      character*(*) what
      integer n, nranks, faults, i
      integer*8 hit_count, before, now
      external hit_count
      double precision b(n)
      now = hit_count()
      if (before .ge. 0 .and. now - before .ne. 1) then
        print *, what, ': hits of one call: ', now - before
        faults = faults + 1
      end if
      do i = 1, n
        if (b(i) .ne. nranks * (nranks - 1) / 2 + i * nranks) then
          print *, what, ': element ', i, ' is ', b(i)
          faults = faults + 1
          return
        end if
      end do
      end
