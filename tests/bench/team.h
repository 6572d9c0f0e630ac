// Threads that run one job together, over and over.
#pragma once

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

namespace waste::bench {

class Team {
  public:
    /// The caller is one of the `size` threads.
    explicit Team(int size);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }
    /// Calls job(member) on every thread, member 0 being the caller, and returns when all are done.
    void run(const std::function<void(int)>& job);

  private:
    int size_;
    const std::function<void(int)>* job_ = nullptr;  ///< null: the threads end
    std::barrier<> start_;
    std::barrier<> done_;
    std::vector<std::thread> threads_;
};

}  // namespace waste::bench
