// What each collective reads and writes of its buffers, on this rank.
//
// describe(Of<Call::x>(), to, ends, arguments...) adds the call's void pointers in the order of its
// arguments to what takes them by add(buffer, blocks, access) and add_unused(buffer). Arguments that
// MPI lets a rank leave undefined are not looked at: those of the root elsewhere, the send arguments
// in place. What a rank may receive only in part (a neighbour that is MPI_PROC_NULL sends nothing) is
// read too.
#pragma once

#include <type_traits>

#include "mpi/bounce.hpp"
#include "mpi/counters.hpp"
#include "mpi/state.hpp"

namespace tutti::mpi {

template <Call call>
using Of = std::integral_constant<Call, call>;

// This rank's place in a call's communicator.
struct Ends {
  int rank = 0;
  int local = 1;  // ranks of its own group
  int peers = 1;  // ranks it exchanges with: of the other group of an intercommunicator
  bool inter = false;
  MPI_Comm comm = MPI_COMM_NULL;

  bool is_root(int root) const { return inter ? root == MPI_ROOT : root == rank; }
  // Gives to a root or takes from it; in an intracommunicator the root does that too.
  bool is_leaf(int root) const { return !inter || root >= 0; }
  int sources() const { return neighbours(comm, rank, Extent::sources); }
  int targets() const { return neighbours(comm, rank, Extent::targets); }
};
// False for what is no communicator.
bool find_ends(MPI_Comm comm, Ends& ends);

inline Access written(const void* sendbuf) {
  return sendbuf == MPI_IN_PLACE ? Access::read_write : Access::write;
}
template <class Count>
int64_t total(int n, const Count* counts) {
  int64_t sum = 0;
  for (int i = 0; counts != nullptr && i < n; ++i) sum += counts[i];
  return sum;
}

inline void describe(Of<Call::barrier>, auto&, const Ends&, MPI_Comm) {}

// ---- Reductions.

template <class Count>
void describe(Of<Call::allreduce>, auto& to, const Ends&, const void* send, void* recv, Count count,
              MPI_Datatype type, MPI_Op, MPI_Comm) {
  to.add(send, run_of(count, type), Access::read);
  to.add(recv, run_of(count, type), written(send));
}

template <class Count>
void describe(Of<Call::reduce>, auto& to, const Ends& ends, const void* send, void* recv,
              Count count, MPI_Datatype type, MPI_Op, int root, MPI_Comm) {
  if (ends.is_leaf(root))
    to.add(send, run_of(count, type), Access::read);
  else
    to.add_unused(send);
  if (ends.is_root(root))
    to.add(recv, run_of(count, type), written(send));
  else
    to.add_unused(recv);
}

template <class Count>
void describe(Of<Call::scan>, auto& to, const Ends&, const void* send, void* recv, Count count,
              MPI_Datatype type, MPI_Op, MPI_Comm) {
  to.add(send, run_of(count, type), Access::read);
  to.add(recv, run_of(count, type), written(send));
}

// Rank 0 receives nothing.
template <class Count>
void describe(Of<Call::exscan>, auto& to, const Ends& ends, const void* send, void* recv,
              Count count, MPI_Datatype type, MPI_Op, MPI_Comm) {
  to.add(send, run_of(count, type), Access::read);
  if (ends.rank != 0)
    to.add(recv, run_of(count, type), written(send));
  else
    to.add(recv, run_of(send == MPI_IN_PLACE ? count : 0, type), Access::read);
}

template <class Count>
void describe(Of<Call::reduce_scatter>, auto& to, const Ends& ends, const void* send, void* recv,
              const Count* counts, MPI_Datatype type, MPI_Op, MPI_Comm) {
  const int64_t all = total(ends.local, counts);
  const int64_t own = counts == nullptr ? 0 : counts[ends.rank];
  to.add(send, run_of(all, type), Access::read);
  to.add(recv, run_of(send == MPI_IN_PLACE ? all : own, type), written(send));
}

template <class Count>
void describe(Of<Call::reduce_scatter_block>, auto& to, const Ends& ends, const void* send,
              void* recv, Count count, MPI_Datatype type, MPI_Op, MPI_Comm) {
  const int64_t all = int64_t{count} * ends.local;
  to.add(send, run_of(all, type), Access::read);
  to.add(recv, run_of(send == MPI_IN_PLACE ? all : int64_t{count}, type), written(send));
}

// ---- From and to a root.

template <class Count>
void describe(Of<Call::bcast>, auto& to, const Ends& ends, void* buffer, Count count,
              MPI_Datatype type, int root, MPI_Comm) {
  const bool part = ends.is_root(root) || ends.is_leaf(root);
  to.add(buffer, run_of(part ? count : 0, type), ends.is_root(root) ? Access::read : Access::write);
}

template <class Count>
void describe(Of<Call::gather>, auto& to, const Ends& ends, const void* send, Count sendcount,
              MPI_Datatype sendtype, void* recv, Count recvcount, MPI_Datatype recvtype, int root,
              MPI_Comm) {
  if (ends.is_leaf(root))
    to.add(send, run_of(sendcount, sendtype), Access::read);
  else
    to.add_unused(send);
  if (ends.is_root(root))
    to.add(recv, run_of(int64_t{recvcount} * ends.peers, recvtype), written(send));
  else
    to.add_unused(recv);
}

template <class Count, class Displ>
void describe(Of<Call::gatherv>, auto& to, const Ends& ends, const void* send, Count sendcount,
              MPI_Datatype sendtype, void* recv, const Count* counts, const Displ* displs,
              MPI_Datatype recvtype, int root, MPI_Comm) {
  if (ends.is_leaf(root))
    to.add(send, run_of(sendcount, sendtype), Access::read);
  else
    to.add_unused(send);
  if (ends.is_root(root))
    to.add(recv, blocks_of(ends.peers, counts, displs, recvtype), written(send));
  else
    to.add_unused(recv);
}

template <class Count>
void describe(Of<Call::scatter>, auto& to, const Ends& ends, const void* send, Count sendcount,
              MPI_Datatype sendtype, void* recv, Count recvcount, MPI_Datatype recvtype, int root,
              MPI_Comm) {
  if (ends.is_root(root))
    to.add(send, run_of(int64_t{sendcount} * ends.peers, sendtype), Access::read);
  else
    to.add_unused(send);
  if (ends.is_leaf(root))
    to.add(recv, run_of(recvcount, recvtype), Access::write);
  else
    to.add_unused(recv);
}

template <class Count, class Displ>
void describe(Of<Call::scatterv>, auto& to, const Ends& ends, const void* send, const Count* counts,
              const Displ* displs, MPI_Datatype sendtype, void* recv, Count recvcount,
              MPI_Datatype recvtype, int root, MPI_Comm) {
  if (ends.is_root(root))
    to.add(send, blocks_of(ends.peers, counts, displs, sendtype), Access::read);
  else
    to.add_unused(send);
  if (ends.is_leaf(root))
    to.add(recv, run_of(recvcount, recvtype), Access::write);
  else
    to.add_unused(recv);
}

// ---- From all to all.

template <class Count>
void describe(Of<Call::allgather>, auto& to, const Ends& ends, const void* send, Count sendcount,
              MPI_Datatype sendtype, void* recv, Count recvcount, MPI_Datatype recvtype, MPI_Comm) {
  to.add(send, run_of(sendcount, sendtype), Access::read);
  to.add(recv, run_of(int64_t{recvcount} * ends.peers, recvtype), written(send));
}

template <class Count, class Displ>
void describe(Of<Call::allgatherv>, auto& to, const Ends& ends, const void* send, Count sendcount,
              MPI_Datatype sendtype, void* recv, const Count* counts, const Displ* displs,
              MPI_Datatype recvtype, MPI_Comm) {
  to.add(send, run_of(sendcount, sendtype), Access::read);
  to.add(recv, blocks_of(ends.peers, counts, displs, recvtype), written(send));
}

template <class Count>
void describe(Of<Call::alltoall>, auto& to, const Ends& ends, const void* send, Count sendcount,
              MPI_Datatype sendtype, void* recv, Count recvcount, MPI_Datatype recvtype, MPI_Comm) {
  const bool in_place = send == MPI_IN_PLACE;
  to.add(send, run_of(in_place ? 0 : int64_t{sendcount} * ends.peers, sendtype), Access::read);
  to.add(recv, run_of(int64_t{recvcount} * ends.peers, recvtype), written(send));
}

template <class Count, class Displ, class Types>
void describe_blocks(auto& to, const Ends& ends, const void* send, const Count* sendcounts,
                     const Displ* sdispls, Types sendtypes, void* recv, const Count* recvcounts,
                     const Displ* rdispls, Types recvtypes) {
  if (send == MPI_IN_PLACE)
    to.add_unused(send);
  else
    to.add(send, blocks_of(ends.peers, sendcounts, sdispls, sendtypes), Access::read);
  to.add(recv, blocks_of(ends.peers, recvcounts, rdispls, recvtypes), written(send));
}
template <class... Args>
void describe(Of<Call::alltoallv>, auto& to, const Ends& ends, Args... args) {
  const auto without_comm = [&](auto send, auto sendcounts, auto sdispls, auto sendtype, auto recv,
                                auto recvcounts, auto rdispls, auto recvtype, MPI_Comm) {
    describe_blocks(to, ends, send, sendcounts, sdispls, sendtype, recv, recvcounts, rdispls,
                    recvtype);
  };
  without_comm(args...);
}
template <class... Args>
void describe(Of<Call::alltoallw>, auto& to, const Ends& ends, Args... args) {
  describe(Of<Call::alltoallv>(), to, ends, args...);
}

// ---- Among neighbours.

template <class Count>
void describe(Of<Call::neighbor_allgather>, auto& to, const Ends& ends, const void* send,
              Count sendcount, MPI_Datatype sendtype, void* recv, Count recvcount,
              MPI_Datatype recvtype, MPI_Comm) {
  to.add(send, run_of(sendcount, sendtype), Access::read);
  to.add(recv, run_of(int64_t{recvcount} * ends.sources(), recvtype), Access::read_write);
}

template <class Count, class Displ>
void describe(Of<Call::neighbor_allgatherv>, auto& to, const Ends& ends, const void* send,
              Count sendcount, MPI_Datatype sendtype, void* recv, const Count* counts,
              const Displ* displs, MPI_Datatype recvtype, MPI_Comm) {
  to.add(send, run_of(sendcount, sendtype), Access::read);
  to.add(recv, blocks_of(ends.sources(), counts, displs, recvtype), Access::read_write);
}

template <class Count>
void describe(Of<Call::neighbor_alltoall>, auto& to, const Ends& ends, const void* send,
              Count sendcount, MPI_Datatype sendtype, void* recv, Count recvcount,
              MPI_Datatype recvtype, MPI_Comm) {
  to.add(send, run_of(int64_t{sendcount} * ends.targets(), sendtype), Access::read);
  to.add(recv, run_of(int64_t{recvcount} * ends.sources(), recvtype), Access::read_write);
}

template <class Count, class Displ, class Types>
void describe(Of<Call::neighbor_alltoallv>, auto& to, const Ends& ends, const void* send,
              const Count* sendcounts, const Displ* sdispls, Types sendtypes, void* recv,
              const Count* recvcounts, const Displ* rdispls, Types recvtypes, MPI_Comm) {
  to.add(send, blocks_of(ends.targets(), sendcounts, sdispls, sendtypes), Access::read);
  to.add(recv, blocks_of(ends.sources(), recvcounts, rdispls, recvtypes), Access::read_write);
}
template <class... Args>
void describe(Of<Call::neighbor_alltoallw>, auto& to, const Ends& ends, Args... args) {
  describe(Of<Call::neighbor_alltoallv>(), to, ends, args...);
}

// ---- The arguments with host copies in place of the buffers: in all these calls only buffers are
// void pointers.

template <class T>
T on_host(const HostCopies& copies, int& index, T argument) {
  if constexpr (std::is_same_v<T, void*> || std::is_same_v<T, const void*>)
    return copies.host(index++);
  else
    return argument;
}
template <class Function, class... Args>
int with_copies(const HostCopies& copies, Function function, Args... args) {
  if (copies.empty()) return function(args...);
  int index = 0;
  // Braces: from left to right.
  const std::tuple<Args...> replaced{on_host(copies, index, args)...};
  return std::apply(function, replaced);
}

}  // namespace tutti::mpi
