// Threads that run the CTAs of emulated kernels.
//
// The threads of a kernel wait for one another and for other kernels, so each must have a real
// thread from the start: run() never queues behind a task that is not yet finished.
#pragma once

#include <functional>

namespace tutti::emu {

void run(std::function<void()> task);

}  // namespace tutti::emu
