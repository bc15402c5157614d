#include "mpi/layout.hpp"

#include <algorithm>

namespace tutti::mpi {

namespace {

void append(Runs& runs, const Run& run) {
  if (run.bytes == 0) return;
  if (!runs.empty() && runs.back().offset + static_cast<ptrdiff_t>(runs.back().bytes) == run.offset)
    runs.back().bytes += run.bytes;
  else
    runs.push_back(run);
}

Run whole(MPI_Datatype datatype) {
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  below.Type_get_true_extent(datatype, &lower, &extent);
  return {lower, static_cast<size_t>(std::max<MPI_Aint>(extent, 0))};
}

// A predefined type is without gaps but for pairs: a value, perhaps a gap, an int.
Runs named(MPI_Datatype datatype) {
  int size = 0;
  below.Type_size(datatype, &size);
  const Run all = whole(datatype);
  const auto bytes = static_cast<size_t>(std::max(size, 0));
  Runs runs;
  if (bytes == all.bytes || bytes <= sizeof(int)) {
    append(runs, {all.offset, bytes});
    return runs;
  }
  const size_t value = bytes - sizeof(int);
  const size_t at = (value + sizeof(int) - 1) / sizeof(int) * sizeof(int);
  append(runs, {0, value});
  append(runs, {static_cast<ptrdiff_t>(at), sizeof(int)});
  return runs;
}

// What MPI_Type_get_contents tells.
struct Contents {
  int combiner = MPI_COMBINER_NAMED;
  bool readable = true;
  std::vector<int> integers;
  std::vector<MPI_Aint> addresses;
  std::vector<MPI_Datatype> types;

  ptrdiff_t integer(size_t i) const { return integers[i]; }
};

bool is_named(int combiner) {
  return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
         combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

struct Envelope {
  MPI_Count integers = 0;
  MPI_Count addresses = 0;
  MPI_Count large = 0;
  MPI_Count types = 0;
  int combiner = MPI_COMBINER_NAMED;
};

#if TUTTI_MPI_LARGE_COUNT
bool open_envelope(MPI_Datatype datatype, Envelope& of) {
  return below.Type_get_envelope_c(datatype, &of.integers, &of.addresses, &of.large, &of.types,
                                   &of.combiner) == MPI_SUCCESS;
}
bool read_contents(MPI_Datatype datatype, const Envelope& sizes, Contents& of) {
  MPI_Count none = 0;
  return below.Type_get_contents_c(datatype, sizes.integers, sizes.addresses, 0, sizes.types,
                                   of.integers.data(), of.addresses.data(), &none,
                                   of.types.data()) == MPI_SUCCESS;
}
#else
bool open_envelope(MPI_Datatype datatype, Envelope& of) {
  int integers = 0;
  int addresses = 0;
  int types = 0;
  const int error = below.Type_get_envelope(datatype, &integers, &addresses, &types, &of.combiner);
  of.integers = integers;
  of.addresses = addresses;
  of.types = types;
  return error == MPI_SUCCESS;
}
bool read_contents(MPI_Datatype datatype, const Envelope& sizes, Contents& of) {
  return below.Type_get_contents(datatype, static_cast<int>(sizes.integers),
                                 static_cast<int>(sizes.addresses), static_cast<int>(sizes.types),
                                 of.integers.data(), of.addresses.data(),
                                 of.types.data()) == MPI_SUCCESS;
}
#endif  // TUTTI_MPI_LARGE_COUNT

Contents read(MPI_Datatype datatype) {
  Contents of;
  Envelope sizes;
  // Large counts come mixed with the rest in an order of each constructor's own.
  of.readable = open_envelope(datatype, sizes) && sizes.large == 0;
  of.combiner = sizes.combiner;
  if (!of.readable || is_named(of.combiner)) return of;
  of.integers.resize(static_cast<size_t>(sizes.integers));
  of.addresses.resize(static_cast<size_t>(sizes.addresses));
  of.types.resize(static_cast<size_t>(sizes.types));
  of.readable = read_contents(datatype, sizes, of);
  return of;
}

// A component type: its runs and extent.
struct Component {
  Layout layout;
  ptrdiff_t extent = 0;
};

// In which order the runs of a layout stand.
enum class Order : uint8_t { memory, type };

Layout read_layout(MPI_Datatype datatype, Order order);

Component component(MPI_Datatype datatype, Order order) {
  Component of;
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  of.layout = read_layout(datatype, order);
  below.Type_get_extent(datatype, &lower, &extent);
  of.extent = extent;
  return of;
}

void release(MPI_Datatype datatype) {
  Envelope sizes;
  if (open_envelope(datatype, sizes) && !is_named(sizes.combiner)) below.Type_free.pmpi(&datatype);
}

void subarray(const Contents& of, const Component& part, Runs& runs) {
  const auto dims = static_cast<size_t>(of.integers[0]);
  const bool fastest_last = of.integers[1 + 3 * dims] == MPI_ORDER_C;
  runs = part.layout.runs;
  ptrdiff_t stride = part.extent;
  for (size_t i = 0; i < dims; ++i) {
    const size_t d = fastest_last ? dims - 1 - i : i;
    Runs wider;
    repeat(runs, of.integer(1 + dims + d), stride, of.integer(1 + 2 * dims + d) * stride, wider);
    runs.swap(wider);
    stride *= of.integer(1 + d);
  }
}

// Runs of a derived type of which all components are the first; false for constructors that are not
// read.
bool uniform(const Contents& of, const Component& part, Runs& runs) {
  const Runs& one = part.layout.runs;
  const ptrdiff_t extent = part.extent;
  const auto n = of.integers.empty() ? size_t{0} : static_cast<size_t>(of.integers[0]);
  switch (of.combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      runs = one;
      return true;
    case MPI_COMBINER_CONTIGUOUS:
      repeat(one, of.integer(0), extent, 0, runs);
      return true;
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR: {
      Runs block;
      repeat(one, of.integer(1), extent, 0, block);
      repeat(block, of.integer(0),
             of.combiner == MPI_COMBINER_VECTOR ? of.integer(2) * extent : of.addresses[0], 0,
             runs);
      return true;
    }
    case MPI_COMBINER_INDEXED:
      for (size_t i = 0; i < n; ++i)
        repeat(one, of.integer(1 + i), extent, of.integer(1 + n + i) * extent, runs);
      return true;
    case MPI_COMBINER_HINDEXED:
      for (size_t i = 0; i < n; ++i) repeat(one, of.integer(1 + i), extent, of.addresses[i], runs);
      return true;
    case MPI_COMBINER_INDEXED_BLOCK:
      for (size_t i = 0; i < n; ++i)
        repeat(one, of.integer(1), extent, of.integer(2 + i) * extent, runs);
      return true;
    case MPI_COMBINER_HINDEXED_BLOCK:
      for (size_t i = 0; i < n; ++i) repeat(one, of.integer(1), extent, of.addresses[i], runs);
      return true;
    case MPI_COMBINER_SUBARRAY:
      subarray(of, part, runs);
      return true;
    default:
      return false;
  }
}

Layout derived(const Contents& of, Order order) {
  Layout layout;
  if (of.combiner == MPI_COMBINER_STRUCT) {
    for (size_t i = 0; i < of.types.size(); ++i) {
      const Component part = component(of.types[i], order);
      layout.exact &= part.layout.exact;
      layout.ordered &= part.layout.ordered;
      repeat(part.layout.runs, of.integer(1 + i), part.extent, of.addresses[i], layout.runs);
    }
  } else if (of.types.size() == 1) {
    const Component part = component(of.types[0], order);
    layout.exact = part.layout.exact && uniform(of, part, layout.runs);
    layout.ordered = part.layout.ordered;
  } else {
    layout.exact = false;
  }
  return layout;
}

}  // namespace

void repeat(const Runs& element, int64_t count, ptrdiff_t stride, ptrdiff_t at, Runs& runs) {
  if (count <= 0 || element.empty()) return;
  if (element.size() == 1 && static_cast<ptrdiff_t>(element[0].bytes) == stride) {
    append(runs, {at + element[0].offset, element[0].bytes * static_cast<size_t>(count)});
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    for (const Run& run : element) append(runs, {at + i * stride + run.offset, run.bytes});
    if (runs.size() > run_limit) return;  // whoever asks sees that and gives up
  }
}

bool merge(Runs& runs) {
  const auto before = [](const Run& a, const Run& b) { return a.offset < b.offset; };
  bool in_order = std::is_sorted(runs.begin(), runs.end(), before);
  if (!in_order) std::sort(runs.begin(), runs.end(), before);
  size_t last = 0;
  for (size_t i = 1; i < runs.size(); ++i) {
    const ptrdiff_t end = runs[last].offset + static_cast<ptrdiff_t>(runs[last].bytes);
    in_order &= runs[i].offset >= end;
    if (runs[i].offset > end) {
      runs[++last] = runs[i];
      continue;
    }
    const ptrdiff_t other = runs[i].offset + static_cast<ptrdiff_t>(runs[i].bytes);
    if (other > end) runs[last].bytes = static_cast<size_t>(other - runs[last].offset);
  }
  if (!runs.empty()) runs.resize(last + 1);
  return in_order;
}

namespace {

Layout read_layout(MPI_Datatype datatype, Order order) {
  const Contents contents = read(datatype);
  Layout layout;
  if (contents.readable && is_named(contents.combiner)) {
    layout.runs = named(datatype);
    return layout;
  }
  if (contents.readable) {
    layout = derived(contents, order);
    for (MPI_Datatype type : contents.types) release(type);
  }
  if (contents.readable && layout.exact && layout.runs.size() <= run_limit) {
    if (order == Order::memory) layout.ordered &= merge(layout.runs);
    return layout;
  }
  layout.exact = false;
  layout.ordered = false;
  layout.runs = {whole(datatype)};
  return layout;
}

}  // namespace

Layout layout_of(MPI_Datatype datatype) {
  return read_layout(datatype, Order::memory);
}

Layout packing_order_of(MPI_Datatype datatype) {
  return read_layout(datatype, Order::type);
}

}  // namespace tutti::mpi
