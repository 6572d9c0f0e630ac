// A JSON event handler that refuses everything; a parser overrides the events it expects where it expects
// them. Only .cc files include this.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "container/result.h"

namespace waste::container {

class JsonEvents : public nlohmann::json::json_sax_t {
  public:
    /// Runs the parser over `text`. The first refused event ends it.
    Result<void> run(std::string_view text, const std::string& place) {
        if (!nlohmann::json::sax_parse(text.begin(), text.end(), this) || error_) {
            Error error = error_.value_or(Error{ErrorKind::corrupt, {}, "is not valid JSON"});
            error.place = place;
            return tl::unexpected<Error>(std::move(error));
        }
        return {};
    }

    bool null() override { return unexpected("null"); }
    bool boolean(bool) override { return unexpected("a boolean"); }
    bool number_integer(int64_t) override { return unexpected("a negative number"); }
    bool number_unsigned(uint64_t) override { return unexpected("a number"); }
    bool number_float(double, const std::string&) override {
        return unexpected("a number that is not whole or too large");
    }
    bool string(std::string&) override { return unexpected("a string"); }
    bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }
    bool start_object(size_t) override { return unexpected("an object"); }
    bool start_array(size_t) override { return unexpected("an array"); }
    bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
        return refuse(ErrorKind::corrupt, fmt::format("is not valid JSON in UTF-8 at byte {}", position));
    }

  protected:
    bool refuse(ErrorKind kind, std::string message) {
        if (!error_) error_ = Error{kind, {}, std::move(message)};
        return false;
    }
    /// Where the parser is, for "<where> must not be <what>".
    virtual std::string where() const = 0;

  private:
    bool unexpected(const char* what) {
        return refuse(ErrorKind::corrupt, fmt::format("{} must not be {}", where(), what));
    }

    std::optional<Error> error_;
};

}  // namespace waste::container
