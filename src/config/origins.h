// Where each key of a loaded config was written, for messages of checks that come after the parsing.
#pragma once

#include <map>
#include <string>

#include "base/error.h"

namespace kata {

class Origins {
 public:
  // `root` stands for keys that nobody wrote (the path of the config).
  explicit Origins(std::string root = "config") : root_(std::move(root)) {}

  void add(const std::string& dotted_key, const std::string& where) { where_[dotted_key] = where; }
  bool given(const std::string& dotted_key) const { return where_.count(dotted_key) != 0; }
  // "configs/x.yaml:3:5" or "--set a.b=c": of the key, or of the nearest section around it that was written.
  std::string where(const std::string& dotted_key) const {
    for (std::string key = dotted_key;;) {
      if (const auto at = where_.find(key); at != where_.end()) return at->second;
      const size_t dot = key.rfind('.');
      if (dot == std::string::npos) return root_;
      key.resize(dot);
    }
  }
  // ExitCode::usage: "<where>: <key>: <what>".
  template <class... Args>
  [[noreturn]] void reject(const std::string& dotted_key, fmt::format_string<Args...> format,
                           Args&&... args) const {
    fail(ExitCode::usage, "{}: {}: {}", where(dotted_key), dotted_key,
         fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string root_;
  std::map<std::string, std::string> where_;
};

}  // namespace kata
