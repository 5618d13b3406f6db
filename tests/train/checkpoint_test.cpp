#include "train/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/compare.h"
#include "support/errors.h"
#include "support/kill_at.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::fails_with;
using test::random_normal;
using test::run_in_child;
using test::TempDir;
using Names = std::vector<std::string>;

// A small model with its optimizer, as the trainer would hand it over; every value depends on the seed.
struct Parts {
  explicit Parts(uint64_t seed)
      : embedding(random_normal<float>(12, seed)),
        weight(random_normal<float>(15, seed + 1)),
        moments(random_normal<float>(27, seed + 2)),
        scale(random_normal<double>(1, seed + 3)) {}

  NamedTensors model() {
    return {{"embedding", Tensor(embedding.data(), DType::f32, {4, 3})},
            {"layers.0.weight", Tensor(weight.data(), DType::f32, {5, 3})}};
  }
  NamedTensors optimizer() {
    return {{"moments", Tensor(moments.data(), DType::f32, {27})},
            {"scale", Tensor(scale.data(), DType::f64, {})}};
  }
  CheckpointContents contents(int64_t step) {
    return {step,
            model(),
            optimizer(),
            {{"step", step}, {"tokens", 8192 * step}, {"best", 1.0 / 3}},
            "train:\n  steps: 400\n",
            {{"tokenizer.json", "{\"model\": \"\xC3\xA9\"}\n"}}};
  }
  bool operator==(const Parts& other) const = default;

  std::vector<float> embedding, weight, moments;
  std::vector<double> scale;
};

Parts read_parts(const Checkpoint& checkpoint) {
  Parts parts(0);
  checkpoint.read_tensors("model.safetensors", parts.model());
  checkpoint.read_tensors("optimizer.safetensors", parts.optimizer());
  return parts;
}

class CheckpointTest : public ::testing::Test {
 protected:
  explicit CheckpointTest(const fs::path& parent = fs::temp_directory_path()) : run(parent) {}

  const TempDir run;
  const std::string root = run / "checkpoints";

  std::string save(int64_t step, uint64_t seed, int64_t keep_last = 0) {
    return save_checkpoint(run.path(), Parts(seed).contents(step), keep_last);
  }
  Names entries() const {
    Names names;
    for (const auto& entry : fs::directory_iterator(root)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  // Opens the run folder; the warnings go to `warnings`.
  Checkpoint open(std::string& warnings) const {
    ::testing::internal::CaptureStderr();
    try {
      Checkpoint checkpoint = open_checkpoint(run.path());
      warnings = ::testing::internal::GetCapturedStderr();
      return checkpoint;
    } catch (...) {
      warnings = ::testing::internal::GetCapturedStderr();
      throw;
    }
  }
  // The run folder gives this step with these values, and not a word of warning.
  void expect_clean(int64_t step, uint64_t seed) const {
    std::string warnings;
    const Checkpoint checkpoint = open(warnings);
    EXPECT_EQ(warnings, "");
    EXPECT_EQ(checkpoint.step(), step);
    EXPECT_TRUE(read_parts(checkpoint) == Parts(seed));
  }
  // Step 2 is refused by name and reason, and through the run folder step 1 is used after a warning of both.
  void expect_fallback(const std::string& file, const std::string& reason) const {
    const std::string path = root + "/step-00000002/" + file;
    EXPECT_TRUE(
        fails_with(ExitCode::data, {path, reason}, [&] { open_checkpoint(root + "/step-00000002"); }));
    std::string warnings;
    const Checkpoint checkpoint = open(warnings);
    EXPECT_EQ(checkpoint.step(), 1);
    EXPECT_TRUE(read_parts(checkpoint) == Parts(10));
    EXPECT_TRUE(warnings.starts_with("[warn] " + path)) << warnings;
    EXPECT_NE(warnings.find(reason), std::string::npos) << warnings;
  }
};

// Plain overwriting, as a fault of the disk would do it.
void overwrite(const std::string& path, const std::string& bytes) {
  fs::remove(path);
  FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
}

TEST_F(CheckpointTest, EverythingComesBackAsSaved) {
  const std::string folder = save(100, 1);
  EXPECT_EQ(folder, root + "/step-00000100");
  EXPECT_EQ(entries(), (Names{"latest", "step-00000100"}));
  EXPECT_EQ(read_file(root + "/latest"), "step-00000100\n");
  for (const std::string& path : {run.path(), run.path() + "/", folder, folder + "//"}) {
    const Checkpoint checkpoint = open_checkpoint(path);
    EXPECT_EQ(checkpoint.folder(), folder);
    EXPECT_EQ(checkpoint.step(), 100);
    EXPECT_EQ(checkpoint.state(), Parts(1).contents(100).state);
    EXPECT_EQ(checkpoint.state()["best"].get<double>(), 1.0 / 3);
    EXPECT_EQ(checkpoint.config(), "train:\n  steps: 400\n");
    EXPECT_EQ(checkpoint.read("tokenizer.json"), "{\"model\": \"\xC3\xA9\"}\n");
    EXPECT_TRUE(checkpoint.contains("tokenizer.json"));
    EXPECT_FALSE(checkpoint.contains("tokenizer.model"));
    EXPECT_TRUE(read_parts(checkpoint) == Parts(1));
    EXPECT_TRUE(fails_with(ExitCode::data, {folder + "/tokenizer.model", "no such file"},
                           [&] { checkpoint.read("tokenizer.model"); }));
  }
  fs::rename(folder, run / "best");  // a folder may be moved out of its run
  EXPECT_TRUE(read_parts(open_checkpoint(run / "best")) == Parts(1));
}

TEST_F(CheckpointTest, TheLatestIsTheLastSaved) {
  save(1, 10);
  save(2, 20);
  expect_clean(2, 20);
  fs::create_directory(root + "/.tmp-step-00000003");  // what a killed save leaves
  save_checkpoint(run.path(), Parts(30).contents(123456789));
  expect_clean(123456789, 30);
  EXPECT_EQ(entries(), (Names{"latest", "step-00000001", "step-00000002", "step-123456789"}));
}

TEST_F(CheckpointTest, KeepLastDeletesTheOldest) {
  for (int64_t step : {5, 10, 15, 20}) save(step, static_cast<uint64_t>(step));
  save(25, 25, 2);
  EXPECT_EQ(entries(), (Names{"latest", "step-00000020", "step-00000025"}));
  save(22, 22, 1);  // resumed from an earlier step: the one just saved stays, and so does the other line
  EXPECT_EQ(entries(), (Names{"latest", "step-00000022", "step-00000025"}));
  expect_clean(22, 22);
  save(25, 26, 1);
  EXPECT_EQ(entries(), (Names{"latest", "step-00000025"}));
  expect_clean(25, 26);
}

TEST_F(CheckpointTest, TheSameStepIsReplacedWhole) {
  save(2, 20);
  save(2, 21);
  expect_clean(2, 21);
  EXPECT_EQ(entries(), (Names{"latest", "step-00000002"}));
}

TEST_F(CheckpointTest, AReplacementThatWasKilledHalfwayLosesNothing) {
  save(2, 20);
  fs::rename(root + "/step-00000002", root + "/step-00000002.replaced");  // killed before the new one came
  std::string warnings;
  const Checkpoint checkpoint = open(warnings);
  EXPECT_EQ(checkpoint.step(), 2);
  EXPECT_TRUE(read_parts(checkpoint) == Parts(20));
  EXPECT_NE(warnings.find("step-00000002, the latest checkpoint, is missing"), std::string::npos) << warnings;
  save(3, 30);
  EXPECT_EQ(entries(), (Names{"latest", "step-00000002", "step-00000003"}));
  EXPECT_TRUE(read_parts(open_checkpoint(root + "/step-00000002")) == Parts(20));

  fs::copy(root + "/step-00000002", root + "/step-00000003.replaced");  // killed before the old one went
  expect_clean(3, 30);
  save(4, 40);
  EXPECT_EQ(entries(), (Names{"latest", "step-00000002", "step-00000003", "step-00000004"}));
  EXPECT_TRUE(read_parts(open_checkpoint(root + "/step-00000003")) == Parts(30));
}

TEST_F(CheckpointTest, EveryFlippedByteOfEveryFileIsFound) {
  save(1, 10);
  save(2, 20);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(root + "/step-00000002")) {
    const std::string path = entry.path().string(), name = entry.path().filename().string();
    const std::string good = read_file(path);
    for (size_t i = 0; i < good.size(); ++i)
      for (const int flip : {0x01, 0x20, 0xFF}) {
        std::string bad = good;
        bad[i] = static_cast<char>(bad[i] ^ flip);
        overwrite(path, bad);
        const bool state = name == "state.json";
        ASSERT_TRUE(fails_with(ExitCode::data, {path, state ? "checksum" : "CRC-32", "damaged"},
                               [&] { open_checkpoint(root + "/step-00000002"); }))
            << name << " byte " << i;
      }
    expect_fallback(name, name == "state.json" ? "checksum" : "CRC-32");
    overwrite(path, good);
    expect_clean(2, 20);
    ++files;
  }
  EXPECT_EQ(files, 5);
}

TEST_F(CheckpointTest, CutExtendedMissingAndUnexpectedFilesAreFound) {
  save(1, 10);
  save(2, 20);
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "config.yaml", "tokenizer.json", "state.json"}) {
    const std::string path = root + "/step-00000002/" + name;
    const std::string good = read_file(path);
    const bool state = std::string(name) == "state.json";
    for (const size_t length : {size_t{0}, size_t{1}, good.size() / 2, good.size() - 1}) {
      overwrite(path, good.substr(0, length));
      expect_fallback(name,
                      state ? (length < 10 ? "truncated" : "checksum") : fmt::format("has {} bytes", length));
    }
    for (const std::string& extra : {std::string(1, '\0'), std::string("\n"), good}) {
      overwrite(path, good + extra);
      expect_fallback(name, state ? "checksum" : fmt::format("has {} bytes", good.size() + extra.size()));
    }
    fs::remove(path);
    expect_fallback(name, "is missing");
    overwrite(path, good);
    expect_clean(2, 20);
  }
  overwrite(root + "/step-00000002/notes.txt", "mine");
  expect_fallback("notes.txt", "not listed");
  fs::remove(root + "/step-00000002/notes.txt");
  fs::rename(root + "/step-00000002", root + "/step-00000003");
  EXPECT_TRUE(fails_with(ExitCode::data, {"step-00000003/state.json", "is of step 2"},
                         [&] { open_checkpoint(root + "/step-00000003"); }));
}

TEST_F(CheckpointTest, ADamagedOrMissingLatestMarkerIsWorkedAround) {
  save(1, 10);
  save(2, 20);
  std::string warnings;
  for (const char* text : {"", "step-2\n", "step-00000002\nx", "../x", "step-00000002.replaced\n"}) {
    overwrite(root + "/latest", text);
    EXPECT_EQ(open(warnings).step(), 2);
    EXPECT_NE(warnings.find("latest is damaged"), std::string::npos) << warnings;
  }
  fs::remove(root + "/latest");
  EXPECT_EQ(open(warnings).step(), 2);
  EXPECT_NE(warnings.find("latest is missing"), std::string::npos) << warnings;
  overwrite(root + "/latest", "step-00000001\n");  // killed between the two renames
  EXPECT_EQ(open(warnings).step(), 1);
  EXPECT_EQ(warnings, "");
  fs::remove_all(root + "/step-00000001");
  EXPECT_TRUE(fails_with(ExitCode::data, {root, "no complete checkpoint"}, [&] { open(warnings); }));
  EXPECT_NE(warnings.find("step-00000001, the latest checkpoint, is missing"), std::string::npos) << warnings;
}

TEST_F(CheckpointTest, WhereNoneIsCompleteItIsAnError) {
  save(1, 10);
  save(2, 20);
  for (const char* step : {"/step-00000001", "/step-00000002"}) fs::remove(root + step + "/config.yaml");
  std::string warnings;
  EXPECT_TRUE(fails_with(ExitCode::data, {root, "no complete checkpoint"}, [&] { open(warnings); }));
  EXPECT_NE(warnings.find("step-00000002/config.yaml: is missing"), std::string::npos) << warnings;
  EXPECT_NE(warnings.find("step-00000001/config.yaml: is missing"), std::string::npos) << warnings;
}

TEST_F(CheckpointTest, PathsThatHoldNoCheckpointAreExplained) {
  overwrite(run / "file", "x");
  const auto open = [](const std::string& path) { return [path] { open_checkpoint(path); }; };
  EXPECT_TRUE(fails_with(ExitCode::data, {run / "none", "No such file", "spelling"}, open(run / "none")));
  EXPECT_TRUE(fails_with(ExitCode::data, {run / "file", "is a file"}, open(run / "file")));
  EXPECT_TRUE(fails_with(ExitCode::data, {run / "file/below", "Not a directory"}, open(run / "file/below")));
  EXPECT_TRUE(
      fails_with(ExitCode::data, {run.path(), "holds no checkpoint", "run folder"}, open(run.path())));
  EXPECT_TRUE(fails_with(ExitCode::data, {"empty path"}, open("")));
  fs::create_directory(root);
  EXPECT_TRUE(fails_with(ExitCode::data, {root, "holds no checkpoint", "train first"}, open(run.path())));
  fs::create_directory(root + "/step-00000007");
  EXPECT_TRUE(
      fails_with(ExitCode::data, {"step-00000007/state.json", "missing"}, open(root + "/step-00000007")));
}

TEST_F(CheckpointTest, TensorsMustBeExactlyTheExpectedOnes) {
  save(1, 10);
  const Checkpoint checkpoint = open_checkpoint(run.path());
  const auto read = [&](const NamedTensors& into) {
    return [&checkpoint, into] { checkpoint.read_tensors("model.safetensors", into); };
  };
  Parts parts(0);
  const std::string file = root + "/step-00000001/model.safetensors";
  NamedTensors tensors = parts.model();
  tensors.pop_back();
  EXPECT_TRUE(fails_with(ExitCode::data, {file, "unexpected layers.0.weight"}, read(tensors)));
  tensors.push_back({"layers.0.bias", Tensor(parts.weight.data(), DType::f32, {5, 3})});
  EXPECT_TRUE(
      fails_with(ExitCode::data, {"missing layers.0.bias; unexpected layers.0.weight"}, read(tensors)));
  tensors = parts.model();
  for (int i = 0; i < 9; ++i) tensors.push_back({"new" + std::to_string(i), tensors[0].second});
  EXPECT_TRUE(fails_with(ExitCode::data, {"missing new0, new1,", "and 3 more"}, read(tensors)));
  tensors = parts.model();
  tensors[1].second = tensors[1].second.view({3, 5});
  EXPECT_TRUE(fails_with(ExitCode::data, {file, "layers.0.weight", "expected F32 [3, 5]", "found F32 [5, 3]"},
                         read(tensors)));
}

// Puts other bytes into a file and makes the sums right again: what a diverged run would have saved.
void forge(const std::string& folder, const std::string& file, size_t from_end, const std::string& bytes) {
  const std::string path = folder + "/" + file;
  std::string data = read_file(path);
  const std::string before = crc32_text(crc32(data));
  data.replace(data.size() - from_end, bytes.size(), bytes);
  overwrite(path, data);
  std::string state = read_file(folder + "/state.json");
  state.replace(state.find(before), 8, crc32_text(crc32(data)));
  const size_t digits = state.size() - 12;
  state.replace(digits, 8, "00000000");
  state.replace(digits, 8, crc32_text(crc32(state)));
  overwrite(folder + "/state.json", state);
}

TEST_F(CheckpointTest, ValuesThatAreNotFiniteAreRefusedOnReading) {
  const std::string folder = save(1, 10);
  Parts parts(0);
  forge(folder, "model.safetensors", 8, std::string("\0\0\x80\x7f", 4));  // the last but one float
  const Checkpoint infinite = open_checkpoint(run.path());
  EXPECT_TRUE(fails_with(ExitCode::data,
                         {folder + "/model.safetensors", "\"layers.0.weight\"", "inf at [4, 1]"},
                         [&] { infinite.read_tensors("model.safetensors", parts.model()); }));
  forge(folder, "optimizer.safetensors", 8, std::string("\1\0\0\0\0\0\xf0\xff", 8));  // the double
  const Checkpoint nan = open_checkpoint(run.path());
  EXPECT_TRUE(fails_with(ExitCode::data, {folder + "/optimizer.safetensors", "\"scale\"", "nan at []"},
                         [&] { nan.read_tensors("optimizer.safetensors", parts.optimizer()); }));
}

TEST_F(CheckpointTest, ValuesThatAreNotFiniteAreNotSaved) {
  save(1, 10);
  Parts parts(20);
  std::vector<float> large(20000);  // beyond one block of the check
  large[19999] = -INFINITY;
  CheckpointContents contents = parts.contents(2);
  contents.optimizer.push_back({"large", Tensor(large.data(), DType::f32, {100, 2, 100})});
  EXPECT_TRUE(fails_with(ExitCode::numeric, {"step 2 was not saved", "large", "-inf at [99, 1, 99]"},
                         [&] { save_checkpoint(run.path(), contents); }));
  parts.embedding[5] = NAN;
  EXPECT_TRUE(fails_with(ExitCode::numeric, {"embedding", "nan at [1, 2]"},
                         [&] { save_checkpoint(run.path(), parts.contents(2), 1); }));
  EXPECT_EQ(entries(), (Names{"latest", "step-00000001"}));
  contents = Parts(20).contents(2);
  contents.state["deep"] = json::array({1, {{"x", NAN}}});
  EXPECT_THROW(save_checkpoint(run.path(), contents), std::logic_error);
}

TEST_F(CheckpointTest, AFormatOfAnotherVersionIsNotTakenForDamage) {
  const std::string folder = save(1, 10);
  std::string state = read_file(folder + "/state.json");
  state.replace(state.find("\"version\": 1"), 12, "\"version\": 2");
  state.replace(state.size() - 12, 8, "00000000");
  state.replace(state.size() - 12, 8, crc32_text(crc32(state)));
  overwrite(folder + "/state.json", state);
  EXPECT_TRUE(fails_with(ExitCode::data, {folder + "/state.json", "version 2", "reads", "version 1"},
                         [&] { open_checkpoint(run.path()); }));
}

TEST_F(CheckpointTest, AFullDiskLeavesTheOldCheckpointAndNothingElse) {
  save(1, 10);
  std::vector<float> large(1 << 16);
  for (const bool in_optimizer : {false, true}) {
    const auto result = run_in_child([&] {
      test::limit_file_size(1 << 16);
      Parts parts(20);
      CheckpointContents contents = parts.contents(2);
      (in_optimizer ? contents.optimizer : contents.model)
          .push_back({"large", Tensor(large.data(), DType::f32, {1 << 16})});
      save_checkpoint(run.path(), contents, 1);
      return 0;
    });
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_NE(result.err.find(in_optimizer ? "optimizer.safetensors" : "model.safetensors"),
              std::string::npos);
    EXPECT_NE(result.err.find("File too large after 65536 of"), std::string::npos) << result.err;
    EXPECT_EQ(entries(), (Names{"latest", "step-00000001"}));
    expect_clean(1, 10);
  }
}

TEST_F(CheckpointTest, NoPermissionAndPathsBelowAFileAreExplained) {
  save(1, 10);
  overwrite(run / "file", "x");
  EXPECT_TRUE(fails_with(ExitCode::data, {run / "file/run/checkpoints", "Not a directory"},
                         [&] { save_checkpoint(run / "file/run", Parts(1).contents(1)); }));
  ::chmod(run.path().c_str(), 0755);
  const auto as_nobody = [](const std::function<void()>& body) {
    return run_in_child([&] {
      if (!test::become_unprivileged()) return 99;
      body();
      return 0;
    });
  };
  const auto saving = as_nobody([&] { save_checkpoint(run.path(), Parts(2).contents(2)); });
  if (saving.exit_code == 99) GTEST_SKIP() << "this process may not become an unprivileged user";
  EXPECT_EQ(saving.exit_code, 3);
  EXPECT_NE(saving.err.find("Permission denied; check the permissions"), std::string::npos) << saving.err;
  expect_clean(1, 10);
  for (const std::string& shut :
       {root + "/step-00000001/model.safetensors", root + "/step-00000001", root, run.path()}) {
    ::chmod(shut.c_str(), 0);
    const auto opening = as_nobody([&] { open_checkpoint(run.path()); });
    EXPECT_EQ(opening.exit_code, 3);
    EXPECT_NE(opening.err.find("Permission denied"), std::string::npos) << shut << ": " << opening.err;
    ::chmod(shut.c_str(), 0755);
  }
}

class CheckpointKill : public CheckpointTest {
 protected:
  CheckpointKill() : CheckpointTest(test::memory_folder()) {}
};

TEST_F(CheckpointKill, AKillBeforeAnyChangeOfTheFolderLosesNothing) {
  for (const bool replace : {false, true}) {
    const int64_t step = replace ? 1 : 2;
    int n = 1;
    for (;; ++n) {
      fs::remove_all(root);
      save(1, 10);
      const auto outcome = test::kill_before_change(n, [&] { save(step, 20, 1); });
      if (outcome == test::KillOutcome::not_permitted) GTEST_SKIP() << "this process may not trace another";
      if (outcome == test::KillOutcome::finished) break;
      std::string warnings;
      const Checkpoint checkpoint = open(warnings);
      const bool is_new = read_parts(checkpoint) == Parts(20);
      EXPECT_TRUE(is_new || read_parts(checkpoint) == Parts(10)) << n;
      EXPECT_EQ(checkpoint.step(), is_new ? step : 1) << n;
      EXPECT_TRUE(warnings.empty() || checkpoint.folder().ends_with(".replaced")) << n << ": " << warnings;
      save(3, 30);  // the next save clears all that lies about
      expect_clean(3, 30);
      for (const std::string& name : entries())
        EXPECT_TRUE(!name.starts_with(".") && !name.ends_with("d")) << name;
    }
    EXPECT_GT(n, 15);
    expect_clean(step, 20);
  }
}

TEST_F(CheckpointKill, AKillAtAnyMomentLeavesALoadableLatest) {
  // Each step is saved twice, so that kills also fall into replacements. All values of a save share one seed.
  save(0, 0);
  int64_t last = 0;
  const Philox random(5, stream_test);
  // Twenty rounds; more, with longer delays, on a machine too slow for a save within them.
  for (uint64_t round = 0; round < 20 || (last == 0 && round < 200); ++round) {
    const int64_t first = last;
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      try {
        for (int64_t i = 2 * first;; ++i) save(i / 2, static_cast<uint64_t>(100 * i), 3);
      } catch (...) {
        ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(round, 30000 * (1 + round / 20))));
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    std::string warnings;
    const Checkpoint checkpoint = open(warnings);
    const bool replacing = fs::exists(root + "/" + fmt::format("step-{:08d}.replaced", checkpoint.step()));
    EXPECT_TRUE(warnings.empty() || replacing) << warnings;
    EXPECT_GE(checkpoint.step(), last);
    const Parts parts = read_parts(checkpoint);
    const uint64_t seed = static_cast<uint64_t>(200 * checkpoint.step());
    EXPECT_TRUE(parts == Parts(seed) || parts == Parts(seed + 100)) << "round " << round;
    last = checkpoint.step();
  }
  EXPECT_GT(last, 0);
  save(last + 1, 7, 1);
  EXPECT_EQ(entries().size(), 2u);
  expect_clean(last + 1, 7);
}

}  // namespace
}  // namespace kata
