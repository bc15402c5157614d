#include "base/status.hpp"

namespace tutti {

const char* Status::text() const {
  switch (code_) {
#define TUTTI_CODE(name, text, mpi_class) \
  case Code::name:                        \
    return text;
#include "base/codes.def"
#undef TUTTI_CODE
  }
  return "unknown status";
}

}  // namespace tutti
