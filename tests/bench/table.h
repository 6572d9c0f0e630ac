// Prints rows as they are done: name, time of one unit, rate, share of the limit.
#pragma once

#include <benchmark/benchmark.h>

#include <string>

namespace waste::bench {

class Table : public benchmark::BenchmarkReporter {
  public:
    /// `heading` stands above the rows.
    explicit Table(std::string heading) : heading_(std::move(heading)) {}

    bool ReportContext(const Context& context) override;
    void ReportRuns(const std::vector<Run>& runs) override;

  private:
    std::string heading_;
    size_t name_width_ = 0;
};

}  // namespace waste::bench
