//! Client of OpenAI's Responses API: `POST {url}/responses`, streaming. The vendor stores nothing:
//! each request has the whole history.

mod parser;

use serde_json::{Map, Value, json};
use url::Url;

use self::parser::ResponseParser;
use super::Request;
use super::driver::{Config, Driver, Protocol, RefusedParameters, TOOLS, WarmUp};
use super::history::{Step, excerpts, steps, system_prompt, visitor_message};
use super::openai::{Dialect, Options, Settings, authorize, cache_key, endpoint};
use super::stream::StreamParser;
use super::tool_calls::{ToolNames, parameters_schema, sanitize_tool_name};

/// OpenAI's own server.
pub const DEFAULT_URL: &str = "https://api.openai.com/v1";

/// Default model; it has a short time to the first token.
pub const DEFAULT_MODEL: &str = "gpt-4.1-mini";

/// Names of the options that an agent may set.
const OPTIONS: [&str; 6] =
    ["max_tokens", "temperature", "top_p", "reasoning_effort", "verbosity", "parallel_tool_calls"];

/// Parameters that some models or servers refuse, and without which a request works too.
const OPTIONAL_PARAMETERS: [&str; 7] = [
    "temperature",
    "top_p",
    "reasoning",
    "verbosity",
    "parallel_tool_calls",
    "max_output_tokens",
    "prompt_cache_key",
];

/// A client of one server. `Config::url` is a base URL that ends in `/v1`, as of
/// [`super::openai::OpenAi`].
pub type OpenAiResponses = Driver<Responses>;

impl OpenAiResponses {
    /// A client of the server at `config.url` that sends through `client` and runs on `runtime`.
    /// It adds to `refused`, which outlives it. With `share_data`, the vendor may store the
    /// conversation.
    #[must_use]
    pub fn new(
        config: Config,
        options: Options,
        share_data: bool,
        client: egress::Client,
        refused: RefusedParameters,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        // A proxy has the parameters of OpenAI.
        let dialect = Dialect::of_url(&config.url).or_openai();
        let settings = Settings { dialect, options, share_data };
        Self::of(Responses { settings }, config, client, refused, runtime)
    }
}

/// Reads the options of an agent (`max_tokens`, `temperature`, `top_p`, `reasoning_effort`,
/// `verbosity`, `parallel_tool_calls`); also returns the names of those that are unknown or have a
/// value that is not allowed.
#[must_use]
pub fn read_options(values: &Map<String, Value>) -> (Options, Vec<&str>) {
    Options::read(values, &OPTIONS)
}

/// The protocol.
pub struct Responses {
    settings: Settings,
}

impl Protocol for Responses {
    fn vendor(&self) -> &'static str {
        self.settings.dialect.vendor
    }

    fn optional_parameters(&self) -> &[&'static str] {
        &OPTIONAL_PARAMETERS
    }

    fn url(&self, base: &str, _model: &str) -> Option<Url> {
        endpoint(self.settings.dialect, base, "responses")
    }

    fn authorize(
        &self,
        request: egress::Request,
        key: Option<&str>,
    ) -> Result<egress::Request, egress::Error> {
        authorize(self.settings.dialect, request, key)
    }

    fn body(&self, request: &Request, model: &str, omitted: &[&'static str]) -> Value {
        let Settings { dialect, options, share_data } = self.settings;
        // The dialect's parameters have the names of the other protocol.
        let constant = |name: &str| {
            let mut parameters = dialect.parameters(model, share_data);
            parameters.find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        let effort = options.reasoning_effort.map(Value::from);
        let verbosity = options.verbosity.map(Value::from);
        let system: Vec<String> =
            [system_prompt(request)].into_iter().chain(excerpts(request)).collect();
        let mut body = Map::new();
        if !model.is_empty() {
            body.insert("model".into(), model.into());
        }
        body.insert("instructions".into(), system.join("\n\n").into());
        body.insert("input".into(), input(request).into());
        body.insert("stream".into(), true.into());
        let mut add = |name: &'static str, key: &str, value: Option<Value>| {
            if let Some(value) = value.filter(|_| !omitted.contains(&name)) {
                body.insert(key.into(), value);
            }
        };
        let has_tools = !request.tools.is_empty();
        add(TOOLS, "tools", has_tools.then(|| tools(request)));
        add("store", "store", (!share_data).then(|| false.into()));
        let effort = effort.or_else(|| constant("reasoning_effort"));
        add("reasoning", "reasoning", effort.map(|effort| json!({ "effort": effort })));
        let verbosity = verbosity.or_else(|| constant("verbosity"));
        add("verbosity", "text", verbosity.map(|verbosity| json!({ "verbosity": verbosity })));
        add("max_output_tokens", "max_output_tokens", options.max_tokens.map(Value::from));
        add("temperature", "temperature", options.temperature.map(Value::from));
        add("top_p", "top_p", options.top_p.map(Value::from));
        let parallel = options.parallel_tool_calls.filter(|_| has_tools);
        add("parallel_tool_calls", "parallel_tool_calls", parallel.map(Value::from));
        let key = dialect.has_cache_key.then(|| cache_key(request).into());
        add("prompt_cache_key", "prompt_cache_key", key);
        body.into()
    }

    fn parser(&self, request: &Request, model: &str) -> Box<dyn StreamParser> {
        Box::new(ResponseParser::new(self.vendor(), &request.tools, model))
    }

    fn warm_up(&self, base: &str, _model: &str) -> Option<WarmUp> {
        endpoint(self.settings.dialect, base, "models").map(WarmUp::Connect)
    }

    fn moderation_url(&self, base: &str) -> Option<Url> {
        endpoint(self.settings.dialect, base, "moderations")
    }
}

fn tools(request: &Request) -> Value {
    let names = ToolNames::new(&request.tools);
    let tools = request.tools.iter().zip(names.of_server()).map(|(tool, name)| {
        json!({
            "type": "function",
            "name": name,
            "description": tool.description,
            "parameters": parameters_schema(tool),
            "strict": false,
        })
    });
    tools.collect()
}

/// The history as items: messages, and calls of tools with their results.
fn input(request: &Request) -> Vec<Value> {
    let mut input = Vec::new();
    if let Some(visitor_text) = visitor_message(request) {
        input.push(json!({"role": "user", "content": visitor_text}));
    }
    for step in steps(request) {
        match step {
            Step::Text(_, text) if text.trim().is_empty() => {}
            Step::Text(role, text) => input.push(json!({"role": role, "content": text})),
            Step::Calls { items, first } => {
                let id = |i: usize| format!("call_{}", first + i + 1);
                input.extend(items.iter().enumerate().map(|(i, item)| {
                    let name = sanitize_tool_name(item.name.as_deref().unwrap_or_default());
                    let arguments =
                        item.arguments.as_ref().map_or_else(|| "{}".to_owned(), Value::to_string);
                    json!({
                        "type": "function_call",
                        "call_id": id(i),
                        "name": name,
                        "arguments": arguments,
                    })
                }));
                input.extend(items.iter().enumerate().map(|(i, item)| {
                    json!({"type": "function_call_output", "call_id": id(i), "output": item.text})
                }));
            }
        }
    }
    input
}

#[cfg(test)]
mod tests;
