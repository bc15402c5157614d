// Stage: a schedule made anew for buffers on a device, which the CPU and the network do not reach.
#pragma once

#include "core/problem.hpp"
#include "sched/schedule.hpp"

namespace tutti {

// Where the input or the output lies on a device (Local::send_on_device, recv_on_device), moves what
// messages and reductions touch there to scratch, and adds the copies to and from it: each as small as
// the step that needs it and started as soon as may be, so that copies overlap with messages. Group
// steps take what lies on the device where it lies, and what a later message needs goes to scratch
// straight. The messages stay the same, so ranks may stage or not, each for itself.
void stage(const Local& local, Schedule& schedule);

}  // namespace tutti
