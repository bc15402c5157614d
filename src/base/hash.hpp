// FNV-1a, 64 bits (Fowler, Noll, Vo): for bytes that ranks compare, equal on all machines. Not for tables
// that an adversary fills.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti {

inline constexpr uint64_t empty_hash = 0xcbf29ce484222325;

constexpr uint64_t hash_byte(uint64_t hash, unsigned char byte) {
  return (hash ^ byte) * 0x100000001b3;
}

// Goes on from `hash`, that of what came before.
constexpr uint64_t hash_of(std::string_view bytes, uint64_t hash = empty_hash) {
  for (const char c : bytes) hash = hash_byte(hash, static_cast<unsigned char>(c));
  return hash;
}
inline uint64_t hash_of(const void* data, size_t bytes, uint64_t hash = empty_hash) {
  return hash_of(std::string_view(static_cast<const char*>(data), bytes), hash);
}

}  // namespace tutti
