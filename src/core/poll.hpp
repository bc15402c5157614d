// What a look at something that goes on in the background says.
#pragma once

#include <cstdint>

#include "base/status.hpp"

namespace tutti {

class [[nodiscard]] Poll {
 public:
  static constexpr Poll busy() { return Poll(State::busy, Code::ok); }
  static constexpr Poll done() { return Poll(State::done, Code::ok); }
  static constexpr Poll failed(Status why) { return Poll(State::done, why.code()); }
  // Finished, well or badly; status() says which.
  constexpr bool finished() const { return state_ == State::done; }
  constexpr Status status() const { return code_; }

 private:
  enum class State : uint8_t { busy, done };
  constexpr Poll(State state, Code code) : state_(state), code_(code) {}
  State state_;
  Code code_;
};

}  // namespace tutti
