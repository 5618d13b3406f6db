// What the user is told: the code and the text of an Error.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/error.h"

namespace kata::test {

// The body must throw an Error of this code, of one line that holds all the parts.
template <class Body>
::testing::AssertionResult fails_with(ExitCode code, const std::vector<std::string>& parts, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string text = error.what();
    if (error.code() != code)
      return ::testing::AssertionFailure() << "code " << static_cast<int>(error.code()) << ": " << text;
    if (text.find('\n') != std::string::npos)
      return ::testing::AssertionFailure() << "several lines: " << text;
    for (const std::string& part : parts)
      if (text.find(part) == std::string::npos)
        return ::testing::AssertionFailure() << "\"" << part << "\" is missing in: " << text;
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "nothing was thrown";
}

}  // namespace kata::test
