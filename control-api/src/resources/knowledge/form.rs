//! A multipart form with documents.

use axum::extract::{FromRequest as _, Multipart, Request};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::ApiError;
use crate::http::extract;
use crate::store::knowledge_base::Content;

/// Maximum size of one document, bytes.
const MAX_DOCUMENT_BYTES: usize = 10 << 20;
/// Maximum size of one request, bytes.
const MAX_REQUEST_BYTES: usize = 100 << 20;

/// A document of the form.
pub(super) struct Document {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) content: Content,
}

impl Document {
    /// Whether it is known to contain no text.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.content, Content::Text(text) if text.trim().is_empty())
    }
}

/// The contents of a form.
#[derive(Default)]
pub(super) struct Form {
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) documents: Vec<Document>,
}

/// The type of a document by the extension of its file name.
fn document_type(file: &str) -> Option<&'static str> {
    let (_, ending) = file.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "pdf" => "pdf",
        "docx" => "docx",
        "txt" => "txt",
        "md" => "md",
        "json" => "json",
        "html" | "htm" => "html",
        "csv" => "csv",
        _ => return None,
    })
}

/// The last component of a path with either separator. The name is only displayed.
fn file_name(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// Parses a form; 400 if a document is too large or of an unsupported type.
pub(super) async fn read(request: Request) -> Result<Form, ApiError> {
    if extract::media_type(request.headers()).as_deref() != Some("multipart/form-data") {
        return Err(ApiError::UnsupportedMediaType("multipart/form-data"));
    }
    let invalid = |_| ApiError::Invalid(Vec::new());
    let mut parts =
        Multipart::from_request(request, &()).await.map_err(|_| ApiError::Invalid(Vec::new()))?;
    let mut form = Form::default();
    let mut total = 0;
    while let Some(mut part) = parts.next_field().await.map_err(invalid)? {
        let field = part.name().unwrap_or_default().to_owned();
        let file = part.file_name().map(str::to_owned);
        let mut bytes = Vec::new();
        while let Some(chunk) = part.chunk().await.map_err(invalid)? {
            total += chunk.len();
            if bytes.len() + chunk.len() > MAX_DOCUMENT_BYTES {
                return Err(ApiError::invalid_field(field, "a document may hold at most 10 MB"));
            }
            if total > MAX_REQUEST_BYTES {
                return Err(ApiError::invalid_field(field, "one request may hold at most 100 MB"));
            }
            bytes.extend_from_slice(&chunk);
        }
        let text = |bytes| {
            let text = String::from_utf8(bytes);
            // NUL characters are removed: no text needs them, and PostgreSQL cannot store them.
            text.map(|text| text.replace('\0', ""))
                .map_err(|_| ApiError::invalid_field(field.as_str(), "must be UTF-8 text"))
        };
        match field.as_str() {
            "name" => form.name = Some(text(bytes)?),
            "description" => form.description = Some(text(bytes)?),
            "text" => {
                let content = Content::Text(text(bytes)?);
                form.documents.push(Document { name: "text".into(), kind: "text", content });
            }
            "input" => {
                let name = file_name(&file.unwrap_or_default()).to_owned();
                let kind = document_type(&name).ok_or_else(|| {
                    ApiError::invalid_field(
                        "input",
                        "must be a file of type pdf, docx, txt, md, json, html or csv",
                    )
                })?;
                let content = match kind {
                    "txt" | "md" => Content::Text(text(bytes)?),
                    _ => Content::File(STANDARD.encode(bytes)),
                };
                form.documents.push(Document { name, kind, content });
            }
            _ => {}
        }
    }
    Ok(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_s_kind_is_its_ending_and_its_name_no_path() {
        for (name, wanted) in [
            ("a.PDF", Some("pdf")),
            ("b.c.htm", Some("html")),
            ("x.exe", None),
            ("pdf", None),
            ("", None),
        ] {
            assert_eq!(document_type(name), wanted, "{name}");
        }
        assert_eq!(file_name("../../etc/passwd.txt"), "passwd.txt");
        assert_eq!(file_name(r"C:\x\a.md"), "a.md");
    }
}
