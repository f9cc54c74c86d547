// The `ai` package of npm, with its providers of OpenAI's APIs.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { createOpenAI } = require("@ai-sdk/openai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { Output, generateText, stepCountIs, streamText, tool } = require("ai");

const { FRANCE, MODEL, QUESTION, Report, TOOLS } = require("./weather.cjs");

const baseURL = process.env.OPENAI_URL;
const compatible = createOpenAICompatible({
  name: "pagemill",
  baseURL,
  apiKey: "none",
  supportsStructuredOutputs: true,
});
const openai = createOpenAI({ baseURL, apiKey: "none" });
const MODELS = { chat: compatible(MODEL), responses: openai.responses(MODEL) };
const LIMITS = { temperature: 0, maxOutputTokens: 100, maxRetries: 0 };

const tools = Object.fromEntries(
  Object.entries(TOOLS).map(([name, { description, schema, run }]) => [
    name,
    tool({ description, inputSchema: schema, execute: async (input) => run(input) }),
  ]),
);
// What each step of an agent has to do: call a tool by its name, call the other, answer.
const CHOICES = [
  { type: "tool", toolName: "find_station" },
  { type: "tool", toolName: "read_temperature" },
  "none",
];

for (const [name, model] of Object.entries(MODELS)) {
  test(`text of ${name}`, async () => {
    const whole = await generateText({ ...LIMITS, model, prompt: FRANCE });
    assert.match(whole.text, /Paris/);
    assert.ok(whole.usage.outputTokens > 1);
    const stream = streamText({ ...LIMITS, model, prompt: FRANCE });
    let text = "";
    for await (const piece of stream.textStream) {
      text += piece;
    }
    assert.equal(text, whole.text);
  });

  for (const generate of [generateText, streamText]) {
    test(`agent of ${name}, ${generate.name}`, async () => {
      const result = await generate({
        ...LIMITS,
        model,
        tools,
        prompt: QUESTION,
        stopWhen: stepCountIs(CHOICES.length),
        prepareStep: ({ stepNumber }) => ({ toolChoice: CHOICES[stepNumber] }),
      });
      const steps = await result.steps;
      const called = steps.flatMap((step) => step.toolCalls.map((call) => call.toolName));
      assert.deepEqual([...new Set(called)], Object.keys(TOOLS));
      assert.equal(steps.length, CHOICES.length);
      assert.ok(await result.text);
    });
  }

  test(`structured output of ${name}`, async () => {
    const request = { ...LIMITS, model, prompt: FRANCE, output: Output.object({ schema: Report }) };
    const whole = await generateText(request);
    Report.parse(whole.output);
    assert.deepEqual(await streamText(request).output, whole.output);
  });
}

test("completion", async () => {
  const model = compatible.completionModel(MODEL);
  const prompt = "Once upon a time";
  const { text } = await generateText({ ...LIMITS, model, prompt, maxOutputTokens: 12 });
  assert.ok(text);
});
