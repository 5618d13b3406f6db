// From documents to request strings: the published forms of every task, and what is refused.
#include <functional>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "eval/harness/python_text.h"
#include "eval/harness/result_files.h"
#include "eval/harness/runner.h"
#include "eval/harness/sha256.h"
#include "support/temp_dir.h"

namespace kata::harness {
namespace {

const std::string fixtures = std::string(KATA_SOURCE_DIR) + "/tests/eval/fixtures";
const Compat head = compat_preset("lm-eval-head");

Item build(const char* task, const std::string& json, const Compat& compat = head) {
  return find_task(task).build(Document("x.jsonl", 3, Json::parse(json)), compat);
}
// The message of the refusal, without which there is a failure.
std::string refusal(const std::function<void()>& call, ExitCode code = ExitCode::data) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}
void expect_refused(const char* task, const std::string& json, const std::string& message) {
  EXPECT_EQ(refusal([&] { build(task, json); }), message) << json;
}

// ---- the whole of it ----

// lm-evaluation-harness 0.4.13 on our fixture documents with its dummy model: beginnings of its task hash (of
// documents, prompts, targets) and of the hash of all request strings; its metrics and errors (-1: none).
struct Published {
  const char *task, *task_hash, *strings_hash;
  std::vector<double> values, errors;
};
const std::vector<Published> published = {
    {"arc_challenge",
     "b22f0f1400dd4fe6",
     "44756a0f232c8fdb",
     {0.0, 0.3333333333333333},
     {0.0, 0.33333333333333337}},
    {"arc_easy", "f7377345fc3b7808", "57844208e70bfc81", {0.25, 0.25}, {0.25, 0.25}},
    {"boolq", "90332aa1ab9fa859", "703680354435842c", {1.0}, {0.0}},
    {"copa", "ff45bb2afe3b48c1", "7c81666035196619", {0.0}, {0.0}},
    {"fda", "2338b99f935999de", "d4b7400b2338e9f6", {0.0}, {-1}},
    {"hellaswag", "625ef5146b5ab9b9", "f6e298ac62f6d14b", {0.0, 0.25}, {0.0, 0.25}},
    {"lambada_openai",
     "18a2df5324aa6d8b",
     "5ba8dec53c6eab1f",
     {1.7770062770083177, 0.0},
     {0.27368930503938765, 0.0}},
    {"lambada_standard",
     "aa8b52ececd0f064",
     "62fa765e41942294",
     {1.885256326462324, 0.0},
     {0.14752851175432624, 0.0}},
    {"openbookqa",
     "8c410b24fe335044",
     "880dcf6e27bbca45",
     {0.0, 0.3333333333333333},
     {0.0, 0.33333333333333337}},
    {"piqa", "aa7a3bdd756cb61b", "7d08259c0a2043b9", {0.0, 0.0}, {0.0, 0.0}},
    {"sciq",
     "3d504fb782b778a5",
     "99a6626ebc6cbf51",
     {0.6666666666666666, 0.3333333333333333},
     {0.33333333333333337, 0.33333333333333337}},
    {"social_iqa", "f744f05e0d1a9298", "77d32fce9d8af057", {0.6666666666666666}, {0.33333333333333337}},
    {"squad_completion", "5563982a32f28bbd", "7e345a7158d16323", {0.3333333333333333}, {-1}},
    {"swde", "5e8fde2541084769", "445c63cb9ccce6c4", {0.3333333333333333}, {-1}},
    {"wikitext",
     "0caf22b395d88863",
     "fa390c6793f86e7c",
     {1.0067565375065795, 1.0020643585209132, 0.002975169947509091},
     {-1, -1, -1}},
    {"winogrande", "8acc7ac2c0b290a6", "e9e31104430c886a", {0.75}, {0.25}},
};

std::string strings_hash(const TaskResult& result) {
  std::string all;
  for (const DocumentResult& document : result.documents)
    for (const Request& request : document.item.requests) all += request.context + request.continuation;
  return sha256_hex(all);
}

TEST(HarnessTasks, StringsAndMetricsOfLmEval) {
  if (!has_case_tables()) GTEST_SKIP() << "this build has no ICU";
  RunOptions options;
  options.data = fixtures;
  options.compat = head;
  options.bootstrap = 1000;
  std::vector<TaskResult> results;
  for (const Published& one : published) results.push_back(prepare_task(find_task(one.task), options));
  DummyScorer dummy;
  ASSERT_TRUE(answer_tasks(results, dummy, [](int64_t, int64_t) { return true; }));
  for (TaskResult& result : results) measure_task(result, options.bootstrap);
  RunRecord record;
  record.options = options;
  const Json json = results_json(results, record);
  for (size_t i = 0; i < published.size(); ++i) {
    const Published& one = published[i];
    EXPECT_EQ(json.at("task_hashes").at(one.task).get<std::string>().substr(0, 16), one.task_hash)
        << one.task;
    EXPECT_EQ(strings_hash(results[i]).substr(0, 16), one.strings_hash) << one.task;
    ASSERT_EQ(results[i].aggregates.size(), one.values.size()) << one.task;
    for (size_t m = 0; m < one.values.size(); ++m) {
      EXPECT_NEAR(results[i].aggregates[m].value, one.values[m], 1e-14) << one.task;
      EXPECT_NEAR(results[i].aggregates[m].error.value_or(-1), one.errors[m], 1e-14) << one.task;
    }
  }
}

// ---- single forms ----

TEST(HarnessTasks, HellaswagText) {
  EXPECT_EQ(hellaswag_text("[header] How to x [title] Do y. [step] Z"), " How to x. Do y. Z");
  EXPECT_EQ(hellaswag_text("a    b"), "a  b");
  EXPECT_EQ(hellaswag_text("[substeps] Foo bar. [substeps] Baz"), " Foo bar. Baz");
  EXPECT_EQ(hellaswag_text(" [open\nline] x [ y"), "[open\nline] x [ y");
}

TEST(HarnessTasks, WikitextDetokenised) {
  const std::string page =
      " \n = Robert Boulter = \n \n He said , \" hello there \" ( 1 @,@ 234 kg ) ; it 's 5 @.@ 6 m @-@ high "
      ". "
      "\n = = Career = = \n the boys ' toys [ a ] { b } 20 \xc2\xb0 C N x \n = = = Sub = = = \n "
      "= = = = Deep = = = = \n";
  EXPECT_EQ(page.size(), 199u);
  EXPECT_EQ(space_fields(page), 65);
  EXPECT_EQ(
      wikitext_detokenised(page),
      "\n= Robert Boulter =\n\nHe said, \"hello there\" (1,234 kg); it's 5.6 m-high.\n== Career ==\nthe "
      "boys' toys [a] {b} 20\xc2\xb0"
      "C 1 x\n=== Sub ===\n==== Deep ====\n");
  EXPECT_EQ(wikitext_detokenised("a : b ? c ! d\n"), "a: b? c! d\n");
  EXPECT_EQ(wikitext_detokenised("it 's the dogs ' '90s\n"), "it's the dogs' '90s\n");
  EXPECT_EQ(space_fields("it 's the dogs ' '90s\n"), 7);
}

TEST(HarnessTasks, WikitextPagesOfTheRawFile) {
  const std::string first = " \n", second = " = One = \n \n text \n = = Part = = \n more ",
                    third = " = Two = \n text \n";
  EXPECT_EQ(wikitext_pages(first + second + "\n" + third), (std::vector<std::string>{second, third}));
  EXPECT_TRUE(wikitext_pages("").empty());
  test::TempDir dir;
  write_file_atomic(dir / "wiki.test.raw", second + "\n" + third);
  EXPECT_EQ(read_documents(find_task("wikitext"), dir.path()).size(), 2u);
}

TEST(HarnessTasks, WinograndeHalves) {
  const Item item = build("winogrande", R"({"sentence": "A _  's b_c. ", "option1": "x ", "option2": "y",
                                            "answer": "2"})");
  EXPECT_EQ(item.requests[0].context, "A x ");
  EXPECT_EQ(item.requests[1].context, "A y");
  EXPECT_EQ(item.requests[0].continuation, " 's b_c.");
  EXPECT_EQ(item.gold, 1);
}

TEST(HarnessTasks, RecallVersionsAndStops) {
  const std::string document = R"({"text": " a b: \n", "value": " c "})";
  const Item now = build("squad_completion", document);
  EXPECT_EQ(now.requests[0].context, "a b:");
  EXPECT_EQ(now.answers, std::vector<std::string>{"c"});
  EXPECT_EQ(now.requests[0].until, std::vector<std::string>{"\n\n"});
  EXPECT_EQ(now.requests[0].max_tokens, 256);
  const Item before = build("squad_completion", document, compat_preset("lm-eval-0.4.8"));
  EXPECT_EQ(before.requests[0].context, " a b: \n");
  EXPECT_EQ(before.target, " c ");
  EXPECT_EQ(before.requests[0].until, std::vector<std::string>{"\n"});
  EXPECT_EQ(before.requests[0].max_tokens, 48);
  const Item between = build("squad_completion", document, compat_preset("lm-eval-0.4.9.1"));
  EXPECT_EQ(between.requests[0].until, std::vector<std::string>{"\n\n"});
  EXPECT_EQ(between.requests[0].max_tokens, 48);
  EXPECT_EQ(build("fda", document, compat_preset("lm-eval-0.4.9.1")).requests[0].until,
            std::vector<std::string>{"\n"});
  EXPECT_EQ(task_version(find_task("fda"), compat_preset("lm-eval-0.4.12")), 0);
  EXPECT_EQ(task_version(find_task("fda"), head), 1);
  EXPECT_NE(refusal([] { compat_preset("lm-eval-1"); }, ExitCode::usage).find("lm-eval-0.4.9.1"),
            std::string::npos);
}

TEST(HarnessTasks, JustReadTwice) {
  if (!has_case_tables()) GTEST_SKIP() << "this build has no ICU";
  const std::string page =
      R"({"text": "Ten pages.\n\nSummary of information above...\npages:", "key": "pages",
                               "value": "ten"})";
  EXPECT_EQ(build("based_swde", page).requests[0].context, "Ten pages. Pages:");
  EXPECT_EQ(build("based_swde_twice", page).requests[0].context,
            "Information about Pages. Ten pages.\nTen pages. Pages:");
  const std::string device = R"({"text": "Use: it beats..\nUSE:use:", "key": "use", "value": "x"})";
  EXPECT_EQ(build("based_fda", device).requests[0].context, "Use: it beats. Use:");
  EXPECT_EQ(build("based_fda_twice", device).requests[0].context,
            "Information about Use. Use: it beats.\nUse: it beats. Use:");
  const std::string asked =
      R"({"context": "[DOC] Oak floats.. what Floats? What floats?", "question": "What floats?",
                                "orig_question": "what?:", "answers": ["oak", "Oak"]})";
  EXPECT_EQ(build("based_nq_1024", asked).requests[0].context,
            "[DOC] Oak floats.. what Floats?. What floats?");
  EXPECT_EQ(build("based_drop", asked).requests[0].context, "[DOC] Oak floats.. what Floats?. What floats?");
  EXPECT_EQ(build("based_nq_512_twice", asked).requests[0].context,
            "what? [DOC] Oak floats.. what Floats?.\n[DOC] Oak floats.. what Floats?. What floats?");
  EXPECT_EQ(build("based_triviaqa", asked).requests[0].context, "Oak floats.. what Floats?. What floats?");
  EXPECT_EQ(build("based_triviaqa", asked).target, " oak");
}

// With tokens of a byte each: 20 of them are kept around the answer.
TEST(HarnessTasks, ContextsAreCutAroundTheAnswer) {
  if (!has_case_tables()) GTEST_SKIP() << "this build has no ICU";
  const auto bytes = make_tokenizer("bytes");
  const auto cut = [&](const char* task, const std::string& json, const char* field) {
    const auto document = cut_around_answer(find_task(task), Document("x", 1, Json::parse(json)), *bytes, 70);
    return document ? document->text(field) : "left out";
  };
  const std::string text = "abcdefghijklmnopqrstuvwxyz0123456789";
  EXPECT_EQ(cut("based_fda", R"({"text": " )" + text + R"(", "value": "PQ"})", "text"),
            "fghijklmnopqrstuvwxy");
  EXPECT_EQ(cut("based_fda", R"({"text": ")" + text + R"(", "value": "bc"})", "text"),
            "abcdefghijklmnopqrst");
  EXPECT_EQ(cut("based_fda", R"({"text": ")" + text + R"(", "value": "89"})", "text"), "yz0123456789");
  EXPECT_EQ(cut("based_fda", R"({"text": ")" + text + R"(", "value": "8"})", "text"), "left out");
  EXPECT_EQ(cut("based_drop", R"({"context": ")" + text + R"(", "answers": ["89"]})", "context"),
            "abcdefghijklmnopqrst");
  EXPECT_EQ(
      cut("based_nq_512", R"({"context": ")" + text + R"(", "answers": ["?!"], "alt_answers": ["--", "pq"]})",
          "context"),
      "fghijklmnopqrstuvwxy");
  EXPECT_EQ(
      cut("based_nq_512", R"({"context": ")" + text + R"(", "answers": ["?!"], "tok_pos": 15})", "context"),
      "fghijklmnopqrstuvwxy");
  EXPECT_EQ(cut("based_nq_512", R"({"context": ")" + text + R"(", "answers": ["?!"]})", "context"),
            "z0123456789");
  // A character that is cut in two is no longer one.
  EXPECT_EQ(cut("based_drop", R"({"context": "abcdefghijklmnopqrs\u00e9", "answers": []})", "context"),
            "abcdefghijklmnopqrs\xef\xbf\xbd");
}

TEST(HarnessTasks, NeedlesOfRuler) {
  RunOptions options;
  options.data = fixtures;
  if (!has_case_tables()) GTEST_SKIP() << "this build has no ICU";
  const TaskResult result = prepare_task(find_task("niah_single_3"), options);
  const Item& item = result.documents.at(0).item;
  EXPECT_TRUE(
      item.requests[0].context.ends_with("provided text? The special magic uuid for gentle-gate mentioned "
                                         "in the provided text is"));
  EXPECT_EQ(item.requests[0].max_tokens, 128);
  EXPECT_TRUE(item.requests[0].until.empty());
  // The files name all documents alike; here they are told apart by their place.
  EXPECT_EQ(result.documents.at(2).id, 2);
}

TEST(HarnessTasks, Limits) {
  RunOptions options;
  options.data = fixtures;
  const auto taken = [&](double limit) {
    options.limit = limit;
    return prepare_task(find_task("arc_easy"), options).documents.size();
  };
  EXPECT_EQ(taken(0), 4u);
  EXPECT_EQ(taken(3), 3u);
  EXPECT_EQ(taken(100), 4u);
  EXPECT_EQ(taken(0.3), 2u);  // rounded up
}

// ---- what is refused ----

TEST(HarnessTasks, FieldsThatAreMissingOrWrong) {
  expect_refused("piqa", R"({"goal": "a", "sol1": "b", "label": 0})",
                 "x.jsonl:3: field \"sol2\": missing; expected text");
  expect_refused("piqa", R"({"goal": 7, "sol1": "b", "sol2": "c", "label": 0})",
                 "x.jsonl:3: field \"goal\": expected text, found the number 7");
  expect_refused("piqa", R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 2})",
                 "x.jsonl:3: field \"label\": expected a number from 0 to 1, found 2");
  expect_refused("piqa", R"({"goal": "a", "sol1": "b", "sol2": "c", "label": -1})",
                 "x.jsonl:3: field \"label\": expected a number from 0 to 1, found -1");
  expect_refused("boolq", R"({"passage": "a", "question": "b", "label": true})",
                 "x.jsonl:3: field \"label\": expected an integer, found true or false");
  expect_refused("arc_easy",
                 R"({"question": "a", "choices": {"text": ["b"], "label": ["A"]}, "answerKey": "B"})",
                 "x.jsonl:3: field \"answerKey\": expected one of the choices' labels (A), found \"B\"");
  expect_refused(
      "arc_easy", R"({"question": "a", "choices": {"text": ["b"], "label": ["A", "B"]}, "answerKey": "B"})",
      "x.jsonl:3: field \"choices.label\": 2 labels of 1 texts; expected one each, and at least one");
  expect_refused("arc_easy",
                 R"({"question": "a", "choices": {"text": ["b", 1], "label": []}, "answerKey": "B"})",
                 "x.jsonl:3: field \"choices.text\": entry 1: expected text, found the number 1");
  expect_refused("arc_easy", R"({"question": {"stem": "a", "choices": []}, "answerKey": "B"})",
                 "x.jsonl:3: field \"question\": expected text, found object");
  expect_refused(
      "winogrande", R"({"sentence": "a _", "option1": "b", "option2": "c", "answer": ""})",
      "x.jsonl:3: field \"answer\": is empty; the test split has no answers, take the validation split");
  expect_refused("winogrande", R"({"sentence": "a", "option1": "b", "option2": "c", "answer": "1"})",
                 "x.jsonl:3: field \"sentence\": has no _ in it; expected one as the blank");
  expect_refused("winogrande", R"({"sentence": "a _", "option1": "b", "option2": "c", "answer": "one"})",
                 "x.jsonl:3: field \"answer\": expected an integer, found the text \"one\"");
  expect_refused("copa", R"({"premise": "a.", "question": "why"})",
                 "x.jsonl:3: field \"question\": expected cause or effect, found \"why\"");
  expect_refused("niah_single_1", R"({"input": "a", "answer_prefix": "b", "outputs": []})",
                 "x.jsonl:3: field \"outputs\": is empty; expected at least one text");
}

std::string refused_bytes(const std::string& bytes) {
  return refusal([&] { parse_jsonl("f.jsonl", bytes); });
}

TEST(HarnessDocuments, LinesThatAreRefused) {
  EXPECT_EQ(refused_bytes(""), "f.jsonl: no documents; expected one JSON object a line");
  EXPECT_EQ(refused_bytes("{}\n[1]\n"), "f.jsonl:2: array; expected an object, {\"field\": value, ...}");
  EXPECT_EQ(refused_bytes("{\"a\": \"\xff\"}"), "f.jsonl:1: not UTF-8; write the file again as UTF-8");
  EXPECT_EQ(refused_bytes("{\"a\": " + std::string(70, '[') + std::string(70, ']') + "}"),
            "f.jsonl:1: nested deeper than 64 brackets");
  EXPECT_TRUE(refused_bytes("{}\n\n{\"a\": }").starts_with("f.jsonl:3: no JSON: syntax error"));
  EXPECT_TRUE(refused_bytes("{\"a\": \"\\ud800\"}").starts_with("f.jsonl:1: no JSON: syntax error"));
}

TEST(HarnessDocuments, MarksLineEndsAndSurrogatesAreRead) {
  const std::vector<Document> documents =
      parse_jsonl("f", "\xef\xbb\xbf{\"a\": \"\\ud83d\\ude42 [[\"}\r\n\r\n{\"a\": \"b\"}\n \n");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].text("a"), "\xf0\x9f\x99\x82 [[");
  EXPECT_EQ(documents[1].line(), 3);
}

TEST(HarnessTasks, NamesAndFilesThatAreNotThere) {
  const std::string unknown = refusal([] { find_task("arc_esy"); }, ExitCode::usage);
  EXPECT_NE(unknown.find("did you mean arc_easy?"), std::string::npos) << unknown;
  test::TempDir dir;
  const std::string missing = refusal([&] { read_documents(find_task("piqa"), dir.path()); });
  EXPECT_NE(missing.find("piqa.jsonl: no such file"), std::string::npos) << missing;
  EXPECT_NE(missing.find("baber/piqa, validation"), std::string::npos) << missing;
}

}  // namespace
}  // namespace kata::harness
