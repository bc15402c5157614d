// Status and Result: how every function in tutti says what went wrong.
//
// Rules (HACKING.md section 4): the function that first knows a cause logs it once, with values;
// callers pass the code on. Outputs are set only on success. Nothing is thrown across C.
#pragma once

#include <optional>
#include <utility>

namespace tutti {

enum class Code : int {
#define TUTTI_CODE(name, text, mpi_class) name,
#include "base/codes.def"
#undef TUTTI_CODE
};

class [[nodiscard]] Status {
 public:
  constexpr Status() = default;
  constexpr Status(Code code)
      : code_(code) {}  // NOLINT(google-explicit-constructor): return Code::x;
  constexpr bool ok() const { return code_ == Code::ok; }
  constexpr Code code() const { return code_; }
  // The code's text from codes.def; a static string.
  const char* text() const;
  friend constexpr bool operator==(Status a, Status b) { return a.code_ == b.code_; }

 private:
  Code code_ = Code::ok;
};

// A value, or the code that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Code code) : status_(code) {}           // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(status) {}     // NOLINT(google-explicit-constructor)
  bool ok() const { return value_.has_value(); }
  Status status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns from the enclosing function when the expression's Status is not ok.
#define TUTTI_TRY(expression)                            \
  do {                                                   \
    ::tutti::Status tutti_try_status = (expression);     \
    if (!tutti_try_status.ok()) return tutti_try_status; \
  } while (0)

}  // namespace tutti
