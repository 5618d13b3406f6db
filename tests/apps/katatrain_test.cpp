// katatrain through its command line: what it writes, and every way to hand it something wrong.
#include <sys/stat.h>
#include <unistd.h>

#include "apps/workspace.h"
#include "base/crc32.h"
#include "base/gpu.h"

namespace kata {
namespace {

using test::expect_error;
using test::ProgramOptions;
using test::slurp;
using test::spill;
using test::Workspace;

TEST(KataTrain, WritesMetricsConfigAndCheckpoints) {
  const Workspace w;
  const auto result = w.train({});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("step 40/40"), std::string::npos)
      << "plain progress lines expected: " << result.err;
  const auto metrics = w.metrics();
  ASSERT_EQ(metrics.size(), 40u);
  for (size_t i = 0; i < metrics.size(); ++i) {
    EXPECT_EQ(metrics[i].at("step"), i + 1);
    EXPECT_EQ(metrics[i].at("tokens"), 160 * (i + 1));
    for (const char* key : {"loss", "grad_norm", "lr"}) EXPECT_TRUE(metrics[i].at(key).is_number()) << key;
    EXPECT_EQ(metrics[i].contains("validation_loss"), (i + 1) % 7 == 0 || i + 1 == 40) << i;
  }
  EXPECT_LT(metrics.back().at("loss").get<double>(), metrics.front().at("loss").get<double>() - 1);
  const double loss = metrics.back().at("validation_loss"),
               bits = metrics.back().at("validation_bits_per_byte");
  EXPECT_NEAR(bits, loss / std::log(2.0), 1e-9);
  int kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(w.dir / "out/checkpoints"))
    kept += entry.is_directory();
  EXPECT_EQ(kept, 3);
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "state.json", "config.yaml", "tokenizer.json"})
    EXPECT_TRUE(w.exists(w.newest() + "/" + file)) << file;

  // The stored config is complete: it gives the same run.
  std::filesystem::copy_file(w.dir / "out/config.yaml", w.dir / "stored.yaml");
  const auto again = w.run("katatrain", {"--config", "stored.yaml", "--output", "again"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(w.metrics("again"), metrics);
}

TEST(KataTrain, RecomputeChangesNoMetric) {
  const Workspace w;
  ASSERT_EQ(w.train({}).exit_code, 0);
  const auto result =
      w.run("katatrain", {"--config", "run.yaml", "--output", "again", "--set", "train.recompute=block"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(w.metrics("again"), w.metrics());
}

TEST(KataTrain, ValidationAndLoggingChangeNoStep) {
  const Workspace w;
  ASSERT_EQ(w.train({}).exit_code, 0);
  const auto result =
      w.run("katatrain", {"--config", "run.yaml", "--output", "again", "--set", "train.validate_every=0",
                          "--set", "logging.every=1", "--set", "train.checkpoint_every=0"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(slurp(w.dir / (w.newest() + "/model.safetensors")),
            slurp(w.dir / (w.newest("again") + "/model.safetensors")));
}

TEST(KataTrain, TrainsOnATask) {
  const Workspace w;
  spill(w.dir / "run.yaml", R"(
model: {hidden: 16, layers: 1, heads: 1, mlp: 16, mixer: {preset: kata_m1, conv: 3, rope: none}}
data: {task: {name: mqar, vocab: 64, test_examples: 10, segments: [{length: 16, pairs: 2, examples: 50}, {length: 32, pairs: 4, examples: 30}]}}
train: {steps: 12, batch_tokens: 512, sequence: 32, validate_every: 6}
optimizer: {lr: 1e-2, warmup: 0}
)");
  const auto result = w.train({});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(w.metrics().back().at("validation_accuracy").is_number());
}

TEST(KataTrain, DryRunPrintsTheResolvedConfigAndTheMemoryAndWritesNothing) {
  const Workspace w;
  const auto result = w.train({"--dry-run", "--set", "data.train=[nowhere/*.bin]"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"hidden: 16", "weight_decay: 0.1", "# memory:", "activations", "# parameters:"})
    EXPECT_NE(result.out.find(text), std::string::npos) << text << " is not in " << result.out;
  EXPECT_FALSE(w.exists("out"));
  spill(w.dir / "dumped.yaml", result.out);
  EXPECT_EQ(w.run("katatrain", {"--config", "dumped.yaml", "--dry-run"}).out, result.out);
}

TEST(KataTrain, ListMixersNeedsNoConfig) {
  const Workspace w;
  const auto result = w.run("katatrain", {"--list-mixers"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.out.find("kata_m2"), std::string::npos);
}

TEST(KataTrain, HelpAndVersion) {
  const Workspace w;
  EXPECT_NE(w.run("katatrain", {"--help"}).out.find("Example"), std::string::npos);
  EXPECT_NE(w.run("katatrain", {"--version"}).out.find("kata "), std::string::npos);
}

TEST(KataTrainErrors, Arguments) {
  const Workspace w;
  expect_error(w.run("katatrain", {}), 2, {"--config"});
  expect_error(w.train({"--nonsense"}), 2, {"--nonsense"});
  expect_error(w.train({"--steps", "-3"}), 2, {"--steps"});
  expect_error(w.train({"--steps", "many"}), 2, {"--steps"});
  for (const char* minutes : {"0", "-1", "nan", "inf", "soon"})
    expect_error(w.train({"--time-limit", minutes}), 2, {"--time-limit"});
  expect_error(w.train({"--log-level", "loud"}), 2, {"loud", "info"});
  expect_error(w.train({"--device", "tpu"}), 2, {"tpu", "cpu"});
  expect_error(w.train({"--device", "cuda:x"}), 2, {"cuda:x", "cuda[:N]"});
  expect_error(w.train({"--device", "cuda:99"}), 5, {"cuda:99"});
  expect_error(w.train({"--device", "cpu", "--set", "train.precision=bf16"}), 2, {"bf16", "fp32"});
  expect_error(w.train({"--device", "cuda", "--set", "train.precision=fp64"}), 2, {"fp64", "--device cpu"});
  EXPECT_FALSE(w.exists("out"));
}

TEST(KataTrainErrors, Config) {
  const Workspace w;
  expect_error(w.run("katatrain", {"--config", "absent.yaml"}), 2, {"absent.yaml"});
  expect_error(w.run("katatrain", {"--config", "text.txt/run.yaml"}), 2, {"text.txt/run.yaml"});
  expect_error(w.train({"--set", "train.stps=3"}), 2, {"train.stps", "steps"});
  expect_error(w.train({"--set", "train.steps=many"}), 2, {"train.steps", "many"});
  expect_error(w.train({"--set", "model.mixer.groups=3"}), 2, {"groups", "3"});
  if (!gpu_problem().empty())
    expect_error(w.train({"--set", "train.precision=bf16"}), 5, {"bf16", "GPU", "train.precision=fp32"});
  expect_error(w.train({"--set", "data.tokenizer=letters"}), 2, {"letters", "bytes"});
  spill(w.dir / "typo.yaml", "model:\n  hiden: 16\n");
  expect_error(w.run("katatrain", {"--config", "typo.yaml"}), 2, {"typo.yaml:2:3", "hiden", "hidden"});
  EXPECT_FALSE(w.exists("out"));
}

TEST(KataTrainErrors, MpiWithMoreThanOneProcess) {
  const Workspace w;
  ProgramOptions options;
  options.environment["OMPI_COMM_WORLD_SIZE"] = "2";
  expect_error(w.train({}, options), 5, {"2"});
  options.environment["OMPI_COMM_WORLD_SIZE"] = "1";
  EXPECT_EQ(w.train({"--dry-run"}, options).exit_code, 0);
}

TEST(KataTrainErrors, Data) {
  const Workspace w;
  expect_error(w.train({"--set", "data.train=[nowhere/*.bin]"}), 3, {"nowhere/*.bin"});
  expect_error(w.train({"--set", "data.train=[text.txt/a.bin]"}), 3, {"text.txt/a.bin"});
  expect_error(w.train({"--set", "data.train=[corpus]"}), 3, {"corpus"});
  expect_error(w.train({"--set", "data.train=[text.txt]"}), 3, {"text.txt"});
  expect_error(w.train({"--set", "data.validation=[absent.bin]"}), 3, {"absent.bin"});
  expect_error(w.train({"--set", "model.vocab=100"}), 3, {"corpus/train-000000.bin", "100"});
  EXPECT_FALSE(w.exists("out")) << "a run folder was made for a run that could not start";

  const std::string shard = w.read("corpus/train-000001.bin");
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"short", shard.substr(0, shard.size() - 1)},
           {"header only", shard.substr(0, 1024)},
           {"half header", shard.substr(0, 500)},
           {"empty", ""},
           {"longer", shard + "x"},
           {"magic", "x" + shard.substr(1)},
           {"version", shard.substr(0, 4) + "x" + shard.substr(5)},
           {"count", shard.substr(0, 8) + "xxxx" + shard.substr(12)}}) {
    spill(w.dir / "broken.bin", bytes);
    SCOPED_TRACE(name);
    expect_error(w.train({"--set", "data.train=[corpus/train-000000.bin, broken.bin]"}), 3, {"broken.bin"});
  }
}

TEST(KataTrainErrors, NoPermission) {
  const Workspace w;
  ProgramOptions nobody;
  if (geteuid() == 0) nobody.user = 65534;
  chmod(w.dir.path().c_str(), 0755);
  chmod((w.dir / "corpus").c_str(), 0755);
  chmod((w.dir / "corpus/train-000000.bin").c_str(), 0);
  if (access(KATA_BIN_DIR, X_OK) != 0 || w.run("katatrain", {"--version"}, nobody).exit_code != 0)
    GTEST_SKIP() << "the build folder is not open to other users";
  expect_error(w.train({}, nobody), 3, {"corpus/train-000000.bin", "ermission"});
  chmod((w.dir / "corpus/train-000000.bin").c_str(), 0644);
  expect_error(w.train({}, nobody), 3, {"out", "ermission"});  // the run's folder cannot be made
  chmod((w.dir / "run.yaml").c_str(), 0);
  expect_error(w.train({}, nobody), 2, {"run.yaml", "ermission"});
}

TEST(KataTrainErrors, OutputBelowAFile) {
  const Workspace w;
  expect_error(w.run("katatrain", {"--config", "run.yaml", "--output", "text.txt/out"}), 3, {"text.txt/out"});
}

TEST(KataTrainErrors, FullDisk) {
  const Workspace w;
  ASSERT_EQ(w.train({"--steps", "10"}).exit_code, 0);
  const std::string before = w.newest();
  ProgramOptions options;
  options.file_size_limit = 8000;  // metrics fit, a checkpoint does not
  expect_error(w.train({"--resume", "--steps", "20"}, options), 3, {"checkpoints"});
  EXPECT_EQ(w.newest(), before);
  for (const auto& entry : std::filesystem::directory_iterator(w.dir / "out/checkpoints"))
    EXPECT_NE(entry.path().filename().string().rfind(".tmp", 0), 0u) << "left behind: " << entry.path();
  EXPECT_EQ(w.train({"--resume", "--steps", "20"}).exit_code, 0);
  options.file_size_limit = 100;  // not even the first line
  expect_error(w.run("katatrain", {"--config", "run.yaml", "--output", "new"}, options), 3, {"new"});
}

TEST(KataTrainErrors, NonFiniteLossEndsWithCode4) {
  const Workspace w;
  const auto result =
      w.train({"--set", "optimizer.lr=1e30", "--set", "optimizer.warmup=0", "--set", "train.clip=0", "--set",
               "optimizer.schedule=constant", "--set", "optimizer.weight_decay=0"});
  expect_error(result, 4, {"step", "train.max_skips"});
  for (const auto& line : w.metrics()) EXPECT_TRUE(line.at("loss").is_number() || line.at("loss").is_null());
}

TEST(KataTrainErrors, DamagedCheckpoint) {
  const Workspace w;
  ASSERT_EQ(w.train({"--steps", "10"}).exit_code, 0);
  const std::string step = w.newest();
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "state.json", "config.yaml", "tokenizer.json"}) {
    SCOPED_TRACE(name);
    const std::string path = w.dir / (step + "/" + name), good = slurp(path);
    for (const size_t at :
         {size_t{0}, good.size() / 4, good.size() / 2, 3 * good.size() / 4, good.size() - 1}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x20);
      spill(path, bad);
      expect_error(w.run("katagen", {"--checkpoint", step, "--tokens", "1"}), 3, {step, name});
    }
    spill(path, good.substr(0, good.size() - 3));
    expect_error(w.run("katagen", {"--checkpoint", step, "--tokens", "1"}), 3, {step, name});
    // The run as a whole falls back to the checkpoint before, with a warning that names this one.
    const auto fallback = w.run("katagen", {"--checkpoint", "out", "--tokens", "1"});
    EXPECT_EQ(fallback.exit_code, 0) << fallback.err;
    EXPECT_NE(fallback.err.find(name), std::string::npos) << fallback.err;
    std::filesystem::remove(path);
    expect_error(w.run("katagen", {"--checkpoint", step, "--tokens", "1"}), 3, {step, name});
    spill(path, good);
  }
  EXPECT_EQ(w.run("katagen", {"--checkpoint", step, "--tokens", "1"}).exit_code, 0);
}

std::string hex(uint32_t value) {
  return fmt::format("{:08x}", value);
}

// The checkpoint folder with other bytes in model.safetensors, every checksum made to fit them.
void replace_model(const std::string& folder, const std::string& bytes) {
  spill(folder + "/model.safetensors", bytes);
  std::string text = slurp(folder + "/state.json");
  const nlohmann::json files = nlohmann::json::parse(text).at("files");
  const auto& old = files.at("model.safetensors");
  const auto set = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from, text.find("\"model.safetensors\""));
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  set(old.at("crc32").get<std::string>(), hex(crc32(bytes)));
  set(std::to_string(old.at("bytes").get<size_t>()), std::to_string(bytes.size()));
  const size_t digits = text.rfind("\"checksum\": \"") + 13;
  text.replace(digits, 8, "00000000");
  text.replace(digits, 8, hex(crc32(text)));
  spill(folder + "/state.json", text);
}

// Files whose checksums are right and whose contents are not: written by another program, or on purpose.
TEST(KataTrainErrors, IntactCheckpointWithImpossibleContents) {
  const Workspace w;
  ASSERT_EQ(w.train({"--steps", "4"}).exit_code, 0);
  const std::string folder = w.newest(), path = w.dir / folder, good = slurp(path + "/model.safetensors");
  const std::vector<std::string> generate = {"--checkpoint", folder, "--tokens", "1"};
  replace_model(path, good);
  ASSERT_EQ(w.run("katagen", generate).exit_code, 0) << "the test's own checksums are wrong";

  std::string nan = good;
  nan.replace(nan.size() - 4, 4, std::string("\x00\x00\xc0\x7f", 4));  // the last float
  replace_model(path, nan);
  expect_error(w.run("katagen", generate), 3, {folder + "/model.safetensors", "nan"});

  // The second tensor lies 4 bytes further in front, inside the first one's end.
  std::string overlap = good;
  const std::string key = "\"data_offsets\":[";
  size_t at = overlap.find(key, overlap.find(key) + 1) + key.size();
  for (const char ends : {',', ']'}) {
    const size_t end = overlap.find(ends, at);
    std::string moved = std::to_string(std::stoll(overlap.substr(at, end - at)) - 4);
    moved.insert(0, end - at - moved.size(), ' ');
    overlap.replace(at, end - at, moved);
    at = end + 1;
  }
  replace_model(path, overlap);
  expect_error(w.run("katagen", generate), 3, {"model.safetensors", "overlaps"});

  std::string renamed = good;
  renamed.replace(renamed.find("\"embedding.weight\""), 18, "\"embedding.wEight\"");
  replace_model(path, renamed);
  expect_error(w.run("katagen", generate), 3, {"embedding.weight", "embedding.wEight"});
}

}  // namespace
}  // namespace kata
