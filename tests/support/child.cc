#include "tests/support/child.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace waste::test {

Child::Child(const std::function<void()>& work) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ < 0) std::abort();
    if (pid_ == 0) {
        work();
        if (write(ends[1], "x", 1) != 1) _exit(1);
        while (true) pause();
    }
    close(ends[1]);
    char byte;
    if (read(ends[0], &byte, 1) != 1) std::abort();
    close(ends[0]);
}

void Child::kill_and_wait() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
}

}  // namespace waste::test
