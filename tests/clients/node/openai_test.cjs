// The `openai` package of npm.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { OpenAI, NotFoundError } = require("openai");
const { zodResponseFormat, zodTextFormat } = require("openai/helpers/zod");
const { z } = require("zod");

const { FRANCE, MODEL, QUESTION, Report, TOOLS } = require("./weather.cjs");

const client = new OpenAI({ baseURL: process.env.OPENAI_URL, apiKey: "none", maxRetries: 0 });
const CHAT = { model: MODEL, temperature: 0, max_completion_tokens: 100 };
const RESPONSE = { model: MODEL, temperature: 0, max_output_tokens: 100 };
const ASK_FRANCE = [{ role: "user", content: FRANCE }];
const FUNCTIONS = Object.entries(TOOLS).map(([name, { description, schema }]) => ({
  name,
  description,
  parameters: z.toJSONSchema(schema),
  strict: true,
}));

test("completions", async () => {
  const request = { model: MODEL, prompt: "Once upon a time", temperature: 0, max_tokens: 12 };
  const whole = await client.completions.create(request);
  let text = "";
  for await (const chunk of await client.completions.create({ ...request, stream: true })) {
    text += chunk.choices[0].text;
  }
  assert.ok(text);
  assert.equal(text, whole.choices[0].text);
});

test("chat", async () => {
  const request = { ...CHAT, messages: ASK_FRANCE };
  const whole = await client.chat.completions.create(request);
  assert.match(whole.choices[0].message.content, /Paris/);
  const stream = client.chat.completions.stream(request);
  assert.equal(await stream.finalContent(), whole.choices[0].message.content);
});

async function answerOfTurn(request, streams) {
  if (!streams) {
    return (await client.chat.completions.create(request)).choices[0].message;
  }
  return client.chat.completions.stream(request).finalMessage();
}

for (const streams of [false, true]) {
  test(`agent of chats, streams: ${streams}`, async () => {
    const tools = FUNCTIONS.map((each) => ({ type: "function", function: each }));
    const messages = [{ role: "user", content: QUESTION }];
    const called = [];
    const named = { type: "function", function: { name: "find_station" } };
    for (const tool_choice of [named, "required", "none"]) {
      const request = { ...CHAT, messages, tools, tool_choice, parallel_tool_calls: false };
      const message = await answerOfTurn(request, streams);
      messages.push(message);
      for (const call of message.tool_calls ?? []) {
        const { name } = call.function;
        called.push(name);
        const content = TOOLS[name].run(JSON.parse(call.function.arguments));
        messages.push({ role: "tool", tool_call_id: call.id, content });
      }
    }
    assert.equal(called.length, 2);
    assert.equal(called[0], "find_station");
    assert.ok(messages.at(-1).content);
  });
}

test("parse", async () => {
  const response_format = zodResponseFormat(Report, "report");
  const got = await client.chat.completions.parse({
    ...CHAT,
    messages: ASK_FRANCE,
    response_format,
  });
  Report.parse(got.choices[0].message.parsed);
  const format = zodTextFormat(Report, "report");
  const response = await client.responses.parse({ ...RESPONSE, input: FRANCE, text: { format } });
  Report.parse(response.output_parsed);
});

test("responses", async () => {
  const whole = await client.responses.create({ ...RESPONSE, input: FRANCE });
  assert.match(whole.output_text, /Paris/);
  const stream = client.responses.stream({ ...RESPONSE, input: FRANCE });
  assert.equal((await stream.finalResponse()).output_text, whole.output_text);
});

test("agent of responses", async () => {
  const tools = FUNCTIONS.map((each) => ({ type: "function", ...each }));
  let input = [{ role: "user", content: QUESTION }];
  let previous_response_id;
  let text;
  const called = [];
  const named = { type: "function", name: "find_station" };
  for (const tool_choice of [named, "required", "none"]) {
    const turn = { input, tools, tool_choice, previous_response_id, parallel_tool_calls: false };
    const response = await client.responses.create({ ...RESPONSE, ...turn });
    const calls = response.output.filter((item) => item.type === "function_call");
    input = calls.map(({ name, arguments: given, call_id }) => {
      called.push(name);
      return { type: "function_call_output", call_id, output: TOOLS[name].run(JSON.parse(given)) };
    });
    previous_response_id = response.id;
    text = response.output_text;
  }
  assert.equal(called.length, 2);
  assert.ok(text);
});

test("errors", async () => {
  const request = { ...CHAT, model: "other", messages: ASK_FRANCE };
  await assert.rejects(client.chat.completions.create(request), NotFoundError);
});
