// The official client against a server: does what it is told, and prints as JSON what came of it.
//     node client.mjs BASE_URL answers | errors | stream
import OpenAI from "openai";

const [, , baseURL, task] = process.argv;
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const given = { model: "tiny", messages: [{ role: "user", content: "the time" }], max_tokens: 5, temperature: 0 };

// The class of the exception is what a program catches.
async function errorOf(call) {
  try {
    await call();
    return null;
  } catch (error) {
    const { status, code, param, message } = error;
    const retryAfter = error.headers?.get("retry-after") ?? null;
    return { kind: error.constructor.name, status, code, param, message, retryAfter };
  }
}

async function streamed(stream) {
  const found = { text: "", finish_reason: null, usage: null };
  for await (const chunk of stream) {
    found.text += chunk.choices[0]?.delta?.content ?? "";
    found.finish_reason = chunk.choices[0]?.finish_reason ?? found.finish_reason;
    found.usage = chunk.usage ?? found.usage;
  }
  return found;
}

const tasks = {
  async answers() {
    const whole = await client.chat.completions.create(given);
    const stream = await client.chat.completions.create({
      ...given,
      stream: true,
      stream_options: { include_usage: true },
    });
    return {
      models: (await client.models.list()).data.map((model) => model.id),
      whole: whole.choices[0].message.content,
      usage: whole.usage,
      streamed: await streamed(stream),
      completion: (await client.completions.create({ model: "tiny", prompt: "the", max_tokens: 3 })).usage.completion_tokens,
    };
  },
  errors() {
    const wrong = [{ model: "gpt-4" }, { n: 2 }, {}];
    return Promise.all(wrong.map((more) => errorOf(() => client.chat.completions.create({ ...given, ...more }))));
  },
  // Says that it has begun, so that whoever started this can drain the server meanwhile.
  async stream() {
    const stream = await client.chat.completions.create({ ...given, max_tokens: 200, stream: true, stream_options: { include_usage: true } });
    console.log(JSON.stringify("begun"));
    return streamed(stream);
  },
};

console.log(JSON.stringify(await tasks[task]()));
