//! Schemas that are derived from types: stored documents, and the bodies of requests and responses.
//! A new body is added to one of the two lists in [`definitions`].

use models::registry::Provider;
use schemars::SchemaGenerator;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value, json};

use super::json_schema::{id, nullable, schema_ref, text, time};
use crate::config::StockAvatar;
use crate::error::{ErrorBody, InvalidBody, NoCapacityBody, UnusablePhotoBody};
use crate::events::record::{Conversation, ListedConversation};
use crate::http::console_session::{LogInRequest, SessionResponse};
use crate::http::responses::{Created, Done, Message};
use crate::join::about::About;
use crate::join::embed::VisitorRequest;
use crate::join::livekit::TokenRequest;
use crate::join::signaling::{Answer, CandidatesRequest, OfferRequest, Taken};
use crate::ops::health::Health;
use crate::resources::agents::shorthand::{FromTemplateRequest, ShortAgentRequest};
use crate::resources::api_keys::{Key, NewKey, NewKeyRequest};
use crate::resources::characters::PreviewRequest;
use crate::resources::conversations::control::{
    ContextRequest, Ended, RespondRequest, SpeakRequest,
};
use crate::resources::conversations::events::EventItem;
use crate::resources::conversations::{
    AuthRequest, ConversationRequest, CreatedConversation, FeedbackRequest, JoinResponse,
};
use crate::resources::credentials::{CredentialItem, CredentialRequest};
use crate::resources::custom_avatars::{
    CustomAvatar, DrawnAvatarBody, PhotoAvatarBody, PhotoPreviewBody, PhotoPreviewResponse,
};
use crate::resources::dead_letters::Delivery;
use crate::resources::knowledge::{
    Added, KnowledgeBase, KnowledgeBaseWithDocuments, UpdateRequest,
};
use crate::resources::livekit::LiveKitAccess;
use crate::resources::mcp::McpCreated;
use crate::resources::meetings::MeetingRequest;
use crate::resources::provider_trials::{ProvidersTest, SampleRequest, TestRequest};
use crate::resources::providers::{LocalServerItem, VoiceItem};
use crate::resources::recordings::Capabilities;
use crate::resources::servers::ServerItem;
use crate::resources::videos::{CreatedVideo, ListedVideo, VideoRecord, VideoRequest};
use crate::store::agent::{self, Agent, Template};
use crate::store::guardrail::GuardrailDocument;
use crate::store::mcp::McpDocument;
use crate::store::tool::ToolDocument;

/// The place of named schemas in the document.
const DEFINITIONS_PATH: &str = "/components/schemas";
/// Names of the documents. The schema of a request is named `AgentBody`, for example; that of a
/// response has the plain name.
const DOCUMENTS: [&str; 5] = ["Agent", "Template", "Tool", "Guardrail", "Mcp"];
/// Properties that a request must have although the type has a default for them: handlers report
/// their absence in their own words.
const REQUIRED_IN_REQUESTS: [(&str, &[&str]); 3] =
    [("Agent", &["avatars"]), ("Guardrail", &["name", "prompt"]), ("Mcp", &["request_config"])];

fn is_document(name: &str) -> bool {
    DOCUMENTS.contains(&name)
}

fn generator(contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = DEFINITIONS_PATH.into();
        settings.contract = contract;
    });
    settings.into_generator()
}

/// Adds the schemas of these types, and of their parts, to the generator's definitions.
macro_rules! add {
    ($generator:ident: $($type:ty),+ $(,)?) => { $( $generator.subschema_for::<$type>(); )+ };
}

/// The named schemas of all documents and bodies, and of their parts.
fn definitions(contract: Contract) -> Map<String, Value> {
    let is_request = contract == Contract::Deserialize;
    let mut generator = generator(contract);
    add!(generator: Agent, Template, ToolDocument, GuardrailDocument, McpDocument);
    if is_request {
        add!(generator:
            AuthRequest, CandidatesRequest, ContextRequest, ConversationRequest, CredentialRequest,
            DrawnAvatarBody,
            FeedbackRequest, FromTemplateRequest, LogInRequest, TokenRequest, MeetingRequest, NewKeyRequest,
            OfferRequest, PhotoAvatarBody, PhotoPreviewBody, PreviewRequest, RespondRequest, SampleRequest,
            ShortAgentRequest,
            SpeakRequest, TestRequest, UpdateRequest, VideoRequest, VisitorRequest,
        );
    } else {
        add!(generator:
            About, Added, Answer, Capabilities, Conversation<'_>, Created, CreatedConversation<'_>,
            CreatedVideo, CredentialItem<'_>, CustomAvatar<'_>, Delivery<'_>, Done, Ended, ErrorBody<'_>, EventItem<'_>, Health,
            InvalidBody<'_>, JoinResponse, LiveKitAccess, Key<'_>, KnowledgeBase<'_>,
            KnowledgeBaseWithDocuments<'_>, ListedConversation<'_>, ListedVideo, LocalServerItem<'_>, McpCreated, Message, NewKey,
            NoCapacityBody<'_>, PhotoPreviewResponse, Provider, ProvidersTest, ServerItem<'_>,
            SessionResponse<'_>, StockAvatar, Taken,
            UnusablePhotoBody<'_>,
            VideoRecord, VoiceItem<'_>,
        );
    }
    let mut definitions = generator.take_definitions(true);
    definitions.insert("TurnSettings".into(), agent::documented_turn_settings());
    for schema in definitions.values_mut() {
        simplify(schema);
    }
    definitions
}

/// Removes what tells readers nothing: formats such as `uint32`, whose limits say what is admitted,
/// and defaults that are empty or repeat those of a part.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.retain(|name, value| match (name.as_str(), value) {
                ("format", Value::String(format)) => !format.contains("int") && format != "double",
                ("default", Value::Null | Value::Array(_) | Value::Object(_)) => false,
                ("default", Value::String(text)) => !text.is_empty(),
                _ => true,
            });
            map.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

fn add_required(schema: &mut Value, name: &str) {
    let name = json!(name);
    match &mut schema["required"] {
        Value::Array(required) if required.contains(&name) => {}
        Value::Array(required) => required.push(name),
        absent => *absent = json!([name]),
    }
}

/// Lets each property that is not required be null, which means the same as absent.
fn make_optional_nullable(schema: &mut Value) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required =
        |name: &String| required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties {
            if !is_required(name) {
                *property = nullable(property.take());
            }
        }
    }
}

/// Schemas of requests.
fn request_schemas() -> Map<String, Value> {
    let mut schemas = definitions(Contract::Deserialize);
    let avatar = &mut schemas["Avatar"]["properties"];
    // A request may give the providers beside `config`, too.
    for (name, schema) in [("llm", "Llm"), ("stt", "Stt"), ("tts", "Tts")] {
        avatar[name] = schema_ref(schema);
    }
    let avatars = &mut schemas["Agent"]["properties"]["avatars"];
    avatars["minItems"] = 1.into();
    // An avatar of a template may lack what an agent's needs.
    let id = json!({"type": "string", "minLength": 1});
    let needed = json!({"required": ["avatar_key_id"], "properties": {"avatar_key_id": id}});
    avatars["items"] = json!({"allOf": [schema_ref("Avatar"), needed]});
    for name in ["name", "prompt"] {
        schemas["Guardrail"]["properties"][name]["minLength"] = 1.into();
    }
    for (document, names) in REQUIRED_IN_REQUESTS {
        names.iter().for_each(|name| add_required(&mut schemas[document], name));
    }
    schemas
        .into_iter()
        .map(|(name, mut schema)| {
            // The settings of turn-taking reject a null that has no meaning.
            if name != "TurnSettings" {
                make_optional_nullable(&mut schema);
            }
            (if is_document(&name) { format!("{name}Body") } else { name }, schema)
        })
        .collect()
}

/// Schemas of responses: every property is present. A part that differs from the part of the same
/// name in requests has a name that ends in `Record`.
fn response_schemas(requests: &Map<String, Value>) -> Map<String, Value> {
    let definitions = definitions(Contract::Serialize);
    let name_of = |name: &str| match (requests.get(name), definitions.get(name)) {
        (Some(request), Some(response)) if request != response => format!("{name}Record"),
        _ => name.to_owned(),
    };
    let mut schemas = Map::new();
    for (name, schema) in &definitions {
        let mut schema = schema.clone();
        rename_references(&mut schema, &name_of);
        remove_url_formats(&mut schema);
        if is_document(name) {
            add_record_fields(name, &mut schema);
        }
        schemas.insert(name_of(name), schema);
    }
    schemas
}

fn rename_references(schema: &mut Value, name_of: &impl Fn(&str) -> String) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && let Some((path, name)) = reference.rsplit_once('/')
            {
                *reference = format!("{path}/{}", name_of(name));
            }
            map.values_mut().for_each(|part| rename_references(part, name_of));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename_references(item, name_of)),
        _ => {}
    }
}

/// An unset URL is an empty text in responses, which has no format.
fn remove_url_formats(schema: &mut Value) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        property.retain(|name, value| name != "format" || value != "uri");
    }
}

/// Adds what the response of a stored document has beyond its fields.
fn add_record_fields(name: &str, schema: &mut Value) {
    let mut fields = vec![("id", id()), ("created_at", time()), ("updated_at", time())];
    if matches!(name, "Agent" | "Template") {
        let attached = [
            ("knowledge_base", "KnowledgeBase"),
            ("tool", "Tool"),
            ("guardrail", "Guardrail"),
            ("mcp", "Mcp"),
        ];
        fields.extend(attached.map(|(name, record)| {
            (name, json!({"type": ["array", "null"], "items": schema_ref(record)}))
        }));
    }
    if name == "Agent" {
        fields.push(("webhook_secret", text()));
        fields.push(("warnings", json!({"type": "array", "items": text()})));
    }
    for (name, field) in fields {
        schema["properties"][name] = field;
        add_required(schema, name);
    }
}

/// All of these schemas, by name.
pub(super) fn type_schemas() -> Map<String, Value> {
    let requests = request_schemas();
    let responses = response_schemas(&requests);
    requests.into_iter().chain(responses).collect()
}
