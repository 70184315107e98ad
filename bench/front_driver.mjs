// Reads scenes as JSON from standard input, plays each against the served app as a web page would, and prints what it shows.
// Every chunk is held against the schema of npm `ai`, every event goes through the verifier of `@ag-ui/client`.
import { parseJsonEventStream, readUIMessageStream, uiMessageChunkSchema } from "ai";
import { HttpAgent, buildResumeArray } from "@ag-ui/client";

const input = await new Promise((resolve) => {
  let text = "";
  process.stdin.on("data", (piece) => (text += piece));
  process.stdin.on("end", () => resolve(JSON.parse(text)));
});

async function streamed(scene, messages, message, found) {
  const response = await fetch(`${scene.url}/api/chat`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ id: scene.thread, messages, trigger: "submit-message" }),
  });
  if (!response.ok) throw new Error(`HTTP ${response.status}: ${await response.text()}`);
  const chunks = parseJsonEventStream({ stream: response.body, schema: uiMessageChunkSchema }).pipeThrough(
    new TransformStream({
      transform(chunk, controller) {
        found.frames += 1;
        if (!chunk.success) found.bad.push(String(chunk.error).slice(0, 300));
        else controller.enqueue(chunk.value);
      },
    }),
  );
  let last = message;
  const onError = (error) => found.errors.push(error.message);
  for await (const state of readUIMessageStream({ message, stream: chunks, onError })) {
    last = state;
    found.longest = Math.max(found.longest, textOf(state).length);
  }
  return last;
}

const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");

async function playUi(scene) {
  const found = { frames: 0, bad: [], errors: [], longest: 0 };
  const user = { id: "u1", role: "user", parts: [{ type: "text", text: scene.prompt }] };
  let message = await streamed(scene, [user], undefined, found);
  for (const approved of scene.answers) {
    const waiting = message.parts.filter((part) => part.state === "approval-requested");
    if (!waiting.length) throw new Error("nothing waits for an approval");
    for (const part of waiting) {
      part.state = "approval-responded";
      part.approval = { id: part.approval.id, approved };
    }
    message = await streamed(scene, [user, message], message, found);
  }
  const tools = (message?.parts ?? []).filter((part) => part.type.startsWith("tool-"));
  return {
    ...found,
    text: message ? textOf(message) : "",
    reasoning: (message?.parts ?? []).filter((part) => part.type === "reasoning").map((part) => part.text).join(""),
    tools: tools.map((part) => [part.type.slice(5), part.state, part.output ?? part.errorText ?? null]),
    open: (message?.parts ?? []).filter((part) => part.state === "streaming").length,
  };
}

async function playAgUi(scene) {
  const found = { frames: 0, bad: [], errors: [], longest: 0 };
  const agent = new HttpAgent({ url: `${scene.url}/ag-ui`, threadId: scene.thread });
  agent.addMessage({ id: "u1", role: "user", content: scene.prompt });
  const said = () => agent.messages.filter((one) => one.role === "assistant").map((one) => one.content ?? "").join("");
  const watcher = {
    onEvent() {
      found.frames += 1;
    },
    onMessagesChanged() {
      found.longest = Math.max(found.longest, said().length);
    },
    onRunErrorEvent({ event }) {
      found.errors.push(event.message);
    },
    onRunFailed({ error }) {
      if (!found.errors.includes(error.message)) found.bad.push(String(error).slice(0, 300));
    },
  };
  const run = async (parameters) => {
    try {
      await agent.runAgent(parameters, watcher);
    } catch (error) {
      if (!found.errors.includes(error.message)) found.bad.push(String(error).slice(0, 300));
    }
  };
  await run({});
  for (const approved of scene.answers) {
    const answers = Object.fromEntries(
      agent.pendingInterrupts.map((one) => [one.id, { status: "resolved", payload: { approved } }]),
    );
    await run({ resume: buildResumeArray(agent.pendingInterrupts, answers) });
  }
  const results = new Map(agent.messages.filter((one) => one.role === "tool").map((one) => [one.toolCallId, one.content]));
  const calls = agent.messages.flatMap((one) => one.toolCalls ?? []);
  return {
    ...found,
    text: said(),
    reasoning: agent.messages.filter((one) => one.role === "reasoning").map((one) => one.content).join(""),
    tools: calls.map((one) => [one.function.name, results.has(one.id) ? "answered" : "open", results.get(one.id) ?? null]),
    open: agent.pendingInterrupts.length,
  };
}

const play = { ui: playUi, "ag-ui": playAgUi };
const results = [];
for (const scene of input) {
  try {
    results.push(await play[scene.protocol](scene));
  } catch (error) {
    results.push({ frames: 0, bad: [String(error.stack ?? error).slice(0, 600)], errors: [] });
  }
}
process.stdout.write(JSON.stringify(results));
process.exit(0);
