#include "config/yaml_reader.h"

#include <algorithm>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config_files.h"
#include "config/config_text.h"

namespace kata {
namespace {

using test::ConfigFiles;

struct Fault {
  const char* name;
  std::string text;
  std::string message;
};

class YamlFault : public ::testing::TestWithParam<Fault> {};

TEST_P(YamlFault, IsOneLineWithItsPlace) {
  const ConfigFiles files;
  std::string found = files.error(GetParam().text);
  // What follows "not valid YAML" are the words of yaml-cpp; 0.8 adds to some of those of 0.7.
  if (found.find(": not valid YAML: ") != std::string::npos)
    found.resize(std::min(found.size(), GetParam().message.size()));
  EXPECT_EQ(found, GetParam().message);
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Nine lists, each of nine aliases of the one before: 9^9 values if it were expanded.
std::string laughs() {
  std::string text = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'j'; ++c) {
    text += c;
    text += fmt::format(": &{} [{}]\n", c, repeated(fmt::format("*{}, ", static_cast<char>(c - 1)), 9));
  }
  return text;
}

const std::string with_nul = std::string("model:\n  hidden: 1") + '\0' + "\n";

INSTANTIATE_TEST_SUITE_P(
    All, YamlFault,
    ::testing::Values(
        Fault{"Empty", "", "x.yaml: the config is empty; expected a map of keys such as model: and data:"},
        Fault{"OnlyComments", "# model:\n\n",
              "x.yaml: the config is empty; expected a map of keys such as model: and data:"},
        Fault{"Scalar", "model\n",
              "x.yaml:1:1: expected a map of keys such as model: and data:, found 'model'"},
        Fault{"List", "- model\n",
              "x.yaml:1:1: expected a map of keys such as model: and data:, found a list of 1"},
        Fault{"NoSpaceAfterColon", "model:\n  hidden:128\n",
              "x.yaml:2:3: model: expected a map of keys, found 'hidden:128'"},
        Fault{"Syntax", "model:\n  hidden: 1: 2\n", "x.yaml:2:12: not valid YAML: illegal map value"},
        Fault{"OpenBracket", "data: {train: [a.bin}\n", "x.yaml:1:21: not valid YAML: illegal flow end"},
        Fault{"TabIndent", "model:\n\thidden: 1\n", "x.yaml:2:8: not valid YAML: illegal map value"},
        Fault{"OpenQuote", "data: {train: ['a.bin]}\n",
              "x.yaml:2:1: not valid YAML: end of sequence flow not found"},
        Fault{"UnknownAnchor", "model: *base\n",
              "x.yaml:1:8: not valid YAML: the referenced anchor is not defined"},
        Fault{"Duplicate", "model:\n  hidden: 1\n  layers: 2\n  hidden: 3\n",
              "x.yaml:4:3: duplicate key 'hidden', first given at line 2"},
        Fault{"DuplicateInFlow", "model: {hidden: 1, hidden: 1}\n",
              "x.yaml:1:20: duplicate key 'hidden', first given at line 1"},
        Fault{"DuplicateOfLines", "\"a\\nb\": 1\n\"a\\nb\": 2\n",
              "x.yaml:2:1: duplicate key 'a\\x0ab', first given at line 1"},
        Fault{"Tag", "model:\n  hidden: !!int 3\n",
              "x.yaml:2:11: tags are not supported; remove 'tag:yaml.org,2002:int'"},
        Fault{"MergeKey", "a: &a {hidden: 1}\nmodel:\n  <<: *a\n",
              "x.yaml:3:3: merge keys (<<) are not supported; write the keys out, or use extends"},
        Fault{"AnchorOnKey", "&a model: 1\n", "x.yaml:1:1: an anchor on a key; anchor the value"},
        Fault{"ListAsKey", "? [a, b]\n: 1\n",
              "x.yaml:1:3: a list or a map in the place of a key; is a bracket left open?"},
        Fault{"NoKey", ": 1\n", "x.yaml:1:1: a key must be one word"},
        Fault{"AliasAsKey", "a: &a x\n*a : 1\n", "x.yaml:2:1: a key must be one word"},
        Fault{"AliasOfItself", "a: &a [*a]\n", "x.yaml:1:8: an alias inside the value that it stands for"},
        Fault{"SecondDocument", "model: {}\n---\nmodel: {}\n",
              "x.yaml:2:1: a second document; a config is one document"},
        Fault{"Deep", "a: " + repeated("[", 40) + repeated("]", 40),
              "x.yaml:1:35: nested more than 32 levels deep"},
        Fault{"DeepIndent", repeated("- ", 100000), "x.yaml:1:65: nested more than 32 levels deep"},
        Fault{"Brackets", "a: " + repeated("[", 500000), "x.yaml:1:204: more than 200 open brackets"},
        Fault{"Laughs", laughs(), "x.yaml:5:8: more than 10000 values"},
        Fault{"Nul", with_nul, "x.yaml:2:12: byte 0x00 is not text; expected YAML in UTF-8"},
        Fault{"Elf",
              "\x7f"
              "ELF\x02\x01",
              "x.yaml:1:1: byte 0x7f is not text; expected YAML in UTF-8"},
        Fault{"Latin1", "model:\n  # caf\xe9\n", "x.yaml:2:8: byte 0xe9 is not text; expected YAML in UTF-8"},
        Fault{"Utf16", "\xff\xfem\0o\0", "x.yaml:1:1: byte 0xff is not text; expected YAML in UTF-8"},
        Fault{"Surrogate", "a: \xed\xa0\x80", "x.yaml:1:4: byte 0xed is not text; expected YAML in UTF-8"},
        Fault{"Overlong", "a: \xc0\xaf", "x.yaml:1:4: byte 0xc0 is not text; expected YAML in UTF-8"},
        Fault{"Overlong3", "a: \xe0\x80\xaf", "x.yaml:1:4: byte 0xe0 is not text; expected YAML in UTF-8"},
        Fault{"Huge", repeated("# a line of a file that is far too long\n", 30000),
              "x.yaml: larger than 1048576 bytes; this is not a config"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(YamlFile, ThatCannotBeOpenedIsNamed) {
  const ConfigFiles files;
  const auto load = [&](const std::string& path) {
    return files.message([&] { load_run_config(path, {}); });
  };
  const std::string file = files.write("x.yaml", test::small_config);
  EXPECT_EQ(load(files.path("none.yaml")), "none.yaml: cannot open the config: No such file or directory");
  EXPECT_EQ(load(file + "/below"), "x.yaml/below: cannot open the config: Not a directory");
  EXPECT_EQ(load(files.path("a\nb")), "a\\x0ab: cannot open the config: No such file or directory");
  EXPECT_EQ(load(""), ": cannot open the config: No such file or directory");
  std::filesystem::create_directory(files.path("folder"));
  EXPECT_EQ(load(files.path("folder")), "folder: is a folder; expected a YAML file");
  ASSERT_EQ(::mkfifo(files.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(load(files.path("pipe")), "pipe: is not a regular file; expected a YAML file");

  ASSERT_EQ(::chmod(file.c_str(), 0), 0);
  ASSERT_EQ(::chmod(files.path("").c_str(), 0755), 0);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);  // nobody
  }
  EXPECT_EQ(load(file), "x.yaml: cannot open the config: Permission denied");
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
}

TEST(YamlFile, ByteOrderMarkCarriageReturnsAndAliasesAreRead) {
  const ConfigFiles files;
  const RunConfig config = files.load(
      "\xef\xbb\xbfmodel:\r\n  mixer: &m {preset: kata_m1}\r\n  hidden: &h 64\r\n  mlp: *h\r\n"
      "data: {train: [&f \"caf\xc3\xa9.bin\", *f]}\r\n");
  EXPECT_EQ(config.model.hidden, 64);
  EXPECT_EQ(config.model.mlp, 64);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"caf\xc3\xa9.bin", "caf\xc3\xa9.bin"}));
}

// Every prefix of a config, and the config with each byte replaced: an error in one line, or a config.
TEST(YamlFile, AnyDamageIsAnErrorOrAConfig) {
  const ConfigFiles files;
  const std::string text =
      "model: {hidden: 64, mixer: [{preset: softmax}, &k {preset: kata_m2}]}\n"
      "data: {train: [\"a.bin\", 'b.bin']}\noptimizer:\n  betas: [0.9, 1e-1]\n";
  for (size_t i = 0; i < text.size(); ++i) {
    files.error(text.substr(0, i));
    for (const char c : {'\0', '\n', '{', ']', ':', '*', '!', '"'}) {
      std::string damaged = text;
      damaged[i] = c;
      files.error(damaged);
    }
  }
}

TEST(Extends, LaysTheFileOverItsBase) {
  const ConfigFiles files;
  std::filesystem::create_directory(files.path("bases"));
  files.write("bases/root.yaml",
              "train: {steps: 7, seed: 9}\nmodel: {layers: 2, mixer: {preset: kata_m1, conv: 4}}\n");
  files.write("bases/base.yaml", "extends: root.yaml\ndata: {train: [a.bin, b.bin]}\nmodel: {hidden: 64}\n");
  const RunConfig config = files.load(
      "extends: bases/base.yaml\ndata: {train: [c.bin]}\nmodel: {mixer: {preset: kata_m4}}\ntrain: {steps: "
      "8}\n");
  EXPECT_EQ(config.train.steps, 8);
  EXPECT_EQ(config.train.seed, 9u);
  EXPECT_EQ(config.model.hidden, 64);
  EXPECT_EQ(config.data.train, std::vector<std::string>{"c.bin"});
  ASSERT_EQ(config.model.mixers.size(), 2u);
  EXPECT_EQ(config.model.mixers[1].groups, 4);
  EXPECT_EQ(config.model.mixers[1].conv, 4);
}

TEST(Extends, MessagesNameTheFileThatIsWrong) {
  const ConfigFiles files;
  files.write("base.yaml", "model:\n  hiden: 64\n");
  EXPECT_EQ(files.error("extends: base.yaml\n" + test::small_config),
            "base.yaml:2:3: model.hiden: unknown key; did you mean 'hidden'?");
  EXPECT_EQ(files.error("extends: [base.yaml]\n"),
            "x.yaml:1:10: extends: expected the path of a YAML file, found a list of 1");
  EXPECT_EQ(files.error("extends:\n"),
            "x.yaml:1:1: extends: expected the path of a YAML file, found nothing");
  EXPECT_EQ(files.error("train: {}\nextends: bse.yaml\n"),
            "x.yaml:2:10: extends: no file bse.yaml; the path is relative to the folder of this file");
  EXPECT_EQ(files.error("extends: \"a\\nb\""),
            "x.yaml:1:10: extends: no file a\\x0ab; the path is relative to the folder of this file");
  EXPECT_EQ(files.error("extends: ."), ".: is a folder; expected a YAML file");
  files.write("broken.yaml", "a: [\n");
  EXPECT_EQ(files.error("extends: broken.yaml"),
            "broken.yaml:2:1: not valid YAML: end of sequence flow not found");
}

TEST(Extends, CyclesAndLongChainsAreErrors) {
  const ConfigFiles files;
  EXPECT_EQ(files.error("extends: x.yaml\n"), "x.yaml:1:10: extends: a cycle: x.yaml -> x.yaml");
  files.write("a.yaml", "extends: b.yaml\n");
  files.write("b.yaml", "extends: ./a.yaml\n");
  EXPECT_EQ(files.error("extends: a.yaml\n"),
            "b.yaml:1:10: extends: a cycle: x.yaml -> a.yaml -> b.yaml -> ./a.yaml");
  for (int i = 0; i < 20; ++i)
    files.write(fmt::format("c{}.yaml", i), fmt::format("extends: c{}.yaml\n", i + 1));
  EXPECT_EQ(files.error("extends: c0.yaml\n"), "c14.yaml:1:10: extends: more than 16 files in a chain");
}

TEST(Override, SetsKeysListItemsAndWholeValues) {
  const ConfigFiles files;
  const std::string text =
      "model: {layers: 2, mixer: [{preset: kata_m1}, {preset: kata_m2}]}\ndata: {train: [a.bin]}\n"
      "optimizer: {betas: [0.5, 0.6]}\n";
  const RunConfig config = files.load(
      text, {"train.steps=5", "train.steps=6", "model.mixer.1.conv=4", "optimizer.betas.0=0.7",
             "data.train=[b.bin, 'c d.bin']", "model.mixer.0={preset: softmax}", "data.tokenizer=\"12\""});
  EXPECT_EQ(config.train.steps, 6);
  EXPECT_EQ(config.model.mixers[0].preset, "softmax");
  EXPECT_EQ(config.model.mixers[1].conv, 4);
  EXPECT_EQ(config.optimizer.betas[0], 0.7);
  EXPECT_EQ(config.optimizer.betas[1], 0.6);
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"b.bin", "c d.bin"}));
  EXPECT_EQ(config.data.tokenizer, "12");
}

TEST(Override, MessagesNameTheOption) {
  const ConfigFiles files;
  const auto error = [&](const std::string& assignment) {
    return files.error(
        "model: {layers: 2, mixer: [{preset: kata_m1}, {preset: kata_m2}]}\ndata: {train: [a.bin]}\n",
        {assignment});
  };
  EXPECT_EQ(error("train.stpes=5"), "--set train.stpes=5: train.stpes: unknown key; did you mean 'steps'?");
  EXPECT_EQ(
      error("extends=y.yaml"),
      "--set extends=y.yaml: extends: unknown key; the keys here are model, data, train, optimizer, logging");
  EXPECT_EQ(error("train.steps=many"),
            "--set train.steps=many: train.steps: expected an integer, 1 to 1000000000000, found 'many'");
  EXPECT_EQ(error("train.steps"), "--set train.steps: expected key=value, such as --set train.steps=100");
  EXPECT_EQ(error("=5"), "--set =5: expected key=value, such as --set train.steps=100");
  EXPECT_EQ(error(""), "--set : expected key=value, such as --set train.steps=100");
  EXPECT_EQ(error("train.steps="), "--set train.steps=: no value after =");
  EXPECT_EQ(error("train..steps=1"),
            "--set train..steps=1: an empty name in the key; expected names joined by single dots");
  EXPECT_EQ(error("train.=1"),
            "--set train.=1: an empty name in the key; expected names joined by single dots");
  EXPECT_EQ(error("model.mixer={a: 1"),
            "--set model.mixer={a: 1: a list or a map in the place of a key; is a bracket left open?");
  EXPECT_EQ(
      error("model.mixer.2.conv=4"),
      "--set model.mixer.2.conv=4: model.mixer is a list of 2; expected an index from 0 below 2, found '2'");
  EXPECT_EQ(
      error("model.mixer.conv=4"),
      "--set model.mixer.conv=4: model.mixer is a list of 2; expected an index from 0 below 2, found 'conv'");
  EXPECT_EQ(error("model.layers.x=4"),
            "--set model.layers.x=4: model.layers is '2', not a map; set the whole of model.layers");
  EXPECT_EQ(
      error("optimizer.betas.0=0.7"),
      "--set optimizer.betas.0=0.7: optimizer.betas is not given in the config, so it has no item 0; set the "
      "whole list, as in optimizer.betas=[...]");
  EXPECT_EQ(error("train.steps=1\n--- 2"),
            "--set train.steps=1\\x0a--- 2: a second document; a config is one document");
  EXPECT_EQ(error(std::string("train.steps=1\x01")),
            "--set train.steps=1\\x01: byte 0x01 is not text; expected YAML in UTF-8");
}

TEST(ConfigText, IsQuotedOnOneLineOfBoundedLength) {
  EXPECT_EQ(printable("a\tb\nc\x7f\xff"), "a\\x09b\\x0ac\\x7f\\xff");
  EXPECT_EQ(printable("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(shortened(std::string(160, 'a')), std::string(160, 'a'));
  EXPECT_EQ(shortened(std::string(100000, 'a') + "the end"),
            std::string(120, 'a') + "..." + std::string(23, 'a') + "the end");
  std::string accents = "x";
  for (int i = 0; i < 200; ++i) accents += "\xc3\xa9";
  EXPECT_EQ(shortened(accents).find("\\x"), std::string::npos) << "cut inside a character";
}

}  // namespace
}  // namespace kata
