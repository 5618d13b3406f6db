// Configs on disk, and the message of the error that loading one gives.
#pragma once

#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "config/suite_config.h"
#include "support/temp_dir.h"

namespace kata::test {

class ConfigFiles {
 public:
  // Writes the file and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = dir_ / name;
    std::ofstream out(path, std::ios::binary);
    out << text;
    out.close();
    KATA_CHECK(out.good(), "cannot write {}", path);
    return path;
  }
  std::string path(const std::string& name) const { return dir_ / name; }

  RunConfig load(const std::string& text, const std::vector<std::string>& overrides = {}) const {
    return load_run_config(write("x.yaml", text), overrides);
  }
  // The message without the folder; empty where nothing was thrown. The exit code must be 2, the message a
  // line.
  std::string error(const std::string& text, const std::vector<std::string>& overrides = {}) const {
    return message([&] { load(text, overrides); });
  }
  template <class Body>
  std::string message(Body&& body) const {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      std::string text = error.what();
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      const std::string folder = dir_.path() + "/";
      for (size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
      return text;
    }
    return "";
  }

 private:
  TempDir dir_;
};

// The smallest config that loads, and places to add to: the text ends inside `train:`.
inline const std::string small_config =
    "model:\n"
    "  mixer: {preset: kata_m2}\n"
    "data: {train: [a.bin]}\n"
    "train:\n"
    "  steps: 3\n";

}  // namespace kata::test
