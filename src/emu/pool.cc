#include "emu/pool.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace tutti::emu {

namespace {

struct Pool {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::function<void()>> tasks;
  size_t idle = 0;
};

Pool& pool() {
  static Pool& all = *new Pool;  // its threads are never joined: they may park at exit
  return all;
}

void work() {
  Pool& all = pool();
  std::unique_lock lock(all.mutex);
  while (true) {
    while (all.tasks.empty()) {
      ++all.idle;
      all.wake.wait(lock);
      --all.idle;
    }
    std::function<void()> task = std::move(all.tasks.front());
    all.tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace

void run(std::function<void()> task) {
  Pool& all = pool();
  std::lock_guard lock(all.mutex);
  all.tasks.push_back(std::move(task));
  // A woken thread counts as idle until it runs, hence the comparison with the queue, not with 0.
  if (all.idle < all.tasks.size())
    std::thread(work).detach();
  else
    all.wake.notify_one();
}

}  // namespace tutti::emu
