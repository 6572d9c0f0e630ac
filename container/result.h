// How every room above the kernels reports what is the world's fault: a value or an Error, never an
// exception.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace waste {

enum class ErrorKind : uint8_t {
    not_found,    ///< a file, tensor or key that should be there is not
    io,           ///< the operating system refused
    corrupt,      ///< bytes contradict themselves or their checksum
    unsupported,  ///< well-formed, but not something this engine handles
    invalid,      ///< a request that makes no sense (a bad token id, an impossible option)
    capacity,     ///< disk, memory or context does not suffice
    interrupted,  ///< stopped on request
};

/// One line a user can act on: `place` says where (file, tensor, field), `message` what and what to do.
struct Error {
    ErrorKind kind;
    std::string place;
    std::string message;

    std::string text() const { return place.empty() ? message : place + ": " + message; }
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorKind kind, std::string place, std::string message) {
    return tl::unexpected<Error>(Error{kind, std::move(place), std::move(message)});
}

/// Passes an error on: `if (!r) return pass(r);`
template <typename T>
tl::unexpected<Error> pass(const Result<T>& failed) {
    return tl::unexpected<Error>(failed.error());
}

}  // namespace waste
