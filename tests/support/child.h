// A forked process that does something and then waits to be ended.
#pragma once

#include <sys/types.h>

#include <functional>

namespace waste::test {

class Child {
  public:
    /// Returns once `work` has been called in the child, which then stays until the object goes.
    explicit Child(const std::function<void()>& work);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() { kill_and_wait(); }

    pid_t pid() const { return pid_; }
    /// Ends it without a chance to clean up.
    void kill_and_wait();

  private:
    pid_t pid_;
};

}  // namespace waste::test
