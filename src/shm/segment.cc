#include "shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "base/log.hpp"

namespace tutti::shm {

namespace {

constexpr uint64_t magic = 0x7475747469736567;  // "tuttiseg"

struct Header {
  uint64_t magic;
  uint64_t nonce[2];
};

// The mappings of this process, so that many communicators share one.
std::mutex mappings_mutex;
std::vector<std::weak_ptr<Segment>> mappings;

void draw_nonce(uint64_t nonce[2]) {
  if (getrandom(nonce, 2 * sizeof(uint64_t), GRND_NONBLOCK) == 2 * sizeof(uint64_t)) return;
  // Early boot: pid and time still tell processes of one machine apart.
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  nonce[0] = (static_cast<uint64_t>(getpid()) << 32) ^ static_cast<uint64_t>(now.tv_nsec);
  nonce[1] = static_cast<uint64_t>(now.tv_sec);
}

std::shared_ptr<Segment> find_mapping(const SegmentName& name) {
  std::lock_guard lock(mappings_mutex);
  for (const auto& weak : mappings)
    if (auto segment = weak.lock(); segment && segment->name() == name) return segment;
  return nullptr;
}

void remember(const std::shared_ptr<Segment>& segment) {
  std::lock_guard lock(mappings_mutex);
  std::erase_if(mappings, [](const auto& weak) { return weak.expired(); });
  mappings.push_back(segment);
}

std::byte* map_fd(int fd, size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

}  // namespace

Result<std::shared_ptr<Segment>> Segment::create(size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  SegmentName name;
  name.pid = getpid();
  name.bytes = (bytes + page - 1) / page * page;
  draw_nonce(name.nonce);
  name.fd = memfd_create("tutti", MFD_CLOEXEC);
  if (name.fd < 0 || ftruncate(name.fd, static_cast<off_t>(name.bytes)) != 0) {
    TUTTI_WARN("shm", "cannot make a shared segment of {} bytes: {}", name.bytes, strerror(errno));
    if (name.fd >= 0) ::close(name.fd);
    return Code::no_memory;
  }
  std::byte* base = map_fd(name.fd, name.bytes);
  if (base == nullptr) {
    TUTTI_WARN("shm", "cannot map a shared segment of {} bytes: {}", name.bytes, strerror(errno));
    ::close(name.fd);
    return Code::no_memory;
  }
  new (base) Header{magic, {name.nonce[0], name.nonce[1]}};
  std::shared_ptr<Segment> segment(new Segment(name, base, true));
  remember(segment);
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::map(const SegmentName& name) {
  if (auto known = find_mapping(name)) return known;
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.fd);
  // Read only first: in another pid namespace the path may name somebody else's file.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return Code::peer_lost;
  struct stat facts {};
  Header header{};
  const bool ours = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) &&
                    static_cast<uint64_t>(facts.st_size) == name.bytes &&
                    pread(fd, &header, sizeof header, 0) == sizeof header &&
                    header.magic == magic && header.nonce[0] == name.nonce[0] &&
                    header.nonce[1] == name.nonce[1];
  ::close(fd);
  if (!ours) return Code::peer_lost;
  fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return Code::peer_lost;
  std::byte* base = map_fd(fd, name.bytes);
  ::close(fd);
  if (base == nullptr) return Code::no_memory;
  std::shared_ptr<Segment> segment(new Segment(name, base, false));
  remember(segment);
  return segment;
}

Segment::~Segment() {
  munmap(base_, name_.bytes);
  if (own_) ::close(name_.fd);
}

void pretouch(void* memory, size_t bytes) {
  constexpr size_t step = 4096;
  if (bytes >= (2u << 20)) madvise(memory, bytes, MADV_HUGEPAGE);
  auto* bytes_of = static_cast<volatile char*>(memory);
  for (size_t at = 0; at < bytes; at += step) bytes_of[at] = bytes_of[at];
}

}  // namespace tutti::shm
