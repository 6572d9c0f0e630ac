#include "tests/bench/team.h"

namespace waste::bench {

Team::Team(int size) : size_(size), start_(size), done_(size) {
    for (int member = 1; member < size; ++member) {
        threads_.emplace_back([this, member] {
            for (;;) {
                start_.arrive_and_wait();
                if (!job_) return;
                (*job_)(member);
                done_.arrive_and_wait();
            }
        });
    }
}

Team::~Team() {
    job_ = nullptr;
    start_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
}

void Team::run(const std::function<void(int)>& job) {
    job_ = &job;
    start_.arrive_and_wait();
    job(0);
    done_.arrive_and_wait();
}

}  // namespace waste::bench
