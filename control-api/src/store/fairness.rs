//! Fair order of workspaces for jobs in the store. There is one queue per workspace and kind of
//! job. The workspace whose last turn is longest ago is next. Each job of a workspace with many
//! jobs thus waits as long as one job of each other workspace takes.

use super::{Result, Transaction};

/// Documents whose text is extracted.
pub(crate) const DOCUMENT_JOBS: &str = "document";
/// Documents whose embeddings are requested.
pub(crate) const EMBEDDING_JOBS: &str = "meaning";
/// Recordings that are delivered, and those that are converted.
pub(crate) const RECORDING_JOBS: &str = "recording";
pub(crate) const CONVERSION_JOBS: &str = "conversion";
/// Avatars that are drawn.
pub(crate) const AVATAR_JOBS: &str = "avatar";
/// Avatars that are drawn again after an upgrade.
pub(crate) const RENEWALS: &str = "renewal";
/// Videos that are made.
pub(crate) const VIDEO_JOBS: &str = "video";

/// SQL expression: the number of the last turn of the workspace in column `$workspace` for jobs of
/// `$kind` (an SQL literal); 0 if it had none.
macro_rules! last_turn {
    ($kind:literal, $workspace:literal) => {
        concat!(
            "(SELECT COALESCE(MAX(number), 0) FROM had_turn WHERE had_turn.kind = '",
            $kind,
            "' AND had_turn.workspace = ",
            $workspace,
            ")"
        )
    };
}

pub(super) use last_turn;

/// Records a turn of a workspace.
pub(crate) async fn record_turn(tx: &mut Transaction, kind: &str, workspace: &str) -> Result<()> {
    sqlx::query(
        "INSERT INTO had_turn (kind, workspace, number) \
         VALUES ($1, $2, (SELECT COALESCE(MAX(number), 0) + 1 FROM had_turn WHERE kind = $1)) \
         ON CONFLICT (kind, workspace) DO UPDATE SET number = excluded.number",
    )
    .bind(kind)
    .bind(workspace)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::knowledge_base::{self, Content};
    use crate::store::{DatabaseLocation, Lock, Store, recording, server, video, video_job};

    /// A store for this test only, with one document for each of these workspaces, in this order.
    async fn store_with_documents(
        name: &str,
        workspaces: &[&str],
        content: &Content,
    ) -> (Store, std::path::PathBuf) {
        let file =
            std::env::temp_dir().join(format!("visavis-turn-{name}-{}.db", std::process::id()));
        let store = Store::open(DatabaseLocation::File(&file)).await.unwrap();
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        for (at, workspace) in (1..).zip(workspaces) {
            let base = knowledge_base::insert(&mut tx, workspace, "n", "d", at).await.unwrap();
            knowledge_base::insert_document(&mut tx, workspace, &base, "n", "json", content, at)
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        (store, file)
    }

    #[tokio::test]
    async fn documents_are_read_in_turn() {
        let file = Content::File("AA==".into());
        let (store, path) =
            store_with_documents("read", &["a", "a", "a", "b", "c", "b"], &file).await;
        let mut order = String::new();
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        server::register(&mut tx, "one").await.unwrap();
        server::set_alive(&mut tx, "one").await.unwrap();
        let mut last = None;
        while let Some(document) = knowledge_base::claim_document(&mut tx, "one").await.unwrap() {
            order.push_str(&document.workspace);
            knowledge_base::save_document_text(&mut tx, &document.kb, &document.id, Ok("words"), 5)
                .await
                .unwrap();
            last = Some(document);
        }
        assert_eq!(order, "abcaba");
        // A document whose extraction was interrupted is claimed again: here, or by another server
        // once this one is dead.
        let cut = last.unwrap().id;
        sqlx::query("UPDATE kb_document SET status = 'processing' WHERE id = $1")
            .bind(&cut)
            .execute(&mut *tx)
            .await
            .unwrap();
        assert!(
            knowledge_base::claim_document(&mut tx, "other").await.unwrap().is_none(),
            "one reads it"
        );
        let again = knowledge_base::claim_document(&mut tx, "one").await.unwrap();
        assert_eq!(again.unwrap().id, cut);
        server::set_lost(&mut tx, "one").await.unwrap();
        let other = knowledge_base::claim_document(&mut tx, "other").await.unwrap();
        assert_eq!(other.unwrap().id, cut);
        tx.commit().await.unwrap();
        store.close().await;
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn embeddings_are_requested_in_turn() {
        let text = Content::Text("words".into());
        let (store, path) = store_with_documents("meant", &["a", "a", "a", "b", "c"], &text).await;
        let mut order = String::new();
        while let Some(document) = store.next_document_to_embed("model").await.unwrap() {
            let mut tx = store.begin_write(Lock::Rows).await.unwrap();
            record_turn(&mut tx, EMBEDDING_JOBS, &document.workspace).await.unwrap();
            knowledge_base::save_embeddings(&mut tx, &document.kb, &document.id, "model", "", 9)
                .await
                .unwrap();
            tx.commit().await.unwrap();
            order.push_str(&document.workspace);
        }
        assert_eq!(order, "abcaa");
        store.close().await;
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn recordings_are_converted_in_turn() {
        let text = Content::Text("words".into());
        let (store, path) = store_with_documents("recorded", &["a"], &text).await;
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        for (at, workspace) in (1..).zip(["a", "a", "a", "b", "c", "b"]) {
            let insertion = "INSERT INTO recording (conversation, workspace, server, status, \
                             created_at, updated_at) VALUES ($1, $2, 's', 'CONVERTING', $3, $3)";
            sqlx::query(insertion)
                .bind(format!("{workspace}{at}"))
                .bind(workspace)
                .bind(at)
                .execute(&mut *tx)
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        let mut order = String::new();
        while let Some(row) = store.due_conversion("s", 10).await.unwrap() {
            let mut tx = store.begin_write(Lock::Rows).await.unwrap();
            record_turn(&mut tx, CONVERSION_JOBS, &row.workspace).await.unwrap();
            recording::mark_failed(&mut tx, &row.conversation, "", 10).await.unwrap();
            tx.commit().await.unwrap();
            order.push_str(&row.workspace);
        }
        assert_eq!(order, "abcaba");
        store.close().await;
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn videos_are_made_in_turn_and_interrupted_ones_first() {
        let text = Content::Text("words".into());
        let (store, path) = store_with_documents("filmed", &["a"], &text).await;
        let mut tx = store.begin_write(Lock::Rows).await.unwrap();
        server::register(&mut tx, "one").await.unwrap();
        server::set_alive(&mut tx, "one").await.unwrap();
        for (at, workspace) in (1..).zip(["a", "a", "a", "b", "c", "b"]) {
            let id = format!("{workspace}{at}");
            let draft = video::Draft {
                id: &id,
                workspace,
                title: "",
                avatar: "nia",
                document: "{}",
                secrets: "",
                audio_server: (at == 1).then_some("other"),
                picture: None,
                draws: false,
                format: "webm",
                size: [512, 512],
                at,
            };
            video::insert(&mut tx, &draft).await.unwrap();
        }
        let mut order = String::new();
        while let Some(row) = video_job::claim(&mut tx, "one", 10).await.unwrap() {
            order.push_str(&row.workspace);
            let retry = video_job::Retry {
                status: video::PROCESSING,
                reason: "",
                is_counted: true,
                next: 20,
            };
            video_job::retry_at(&mut tx, &row, &retry, 10).await.unwrap();
        }
        assert_eq!(order, "abcab", "the sound is on another server");
        let again = video_job::claim(&mut tx, "one", 20).await.unwrap().unwrap();
        assert_eq!((again.attempts, again.error), (1, None));
        assert!(
            video_job::claim(&mut tx, "other", 10).await.unwrap().is_some_and(|r| r.id == "a1")
        );
        server::set_lost(&mut tx, "one").await.unwrap();
        let taken_over = video_job::claim(&mut tx, "other", 20).await.unwrap().unwrap();
        assert_ne!(taken_over.id, "a1");
        tx.commit().await.unwrap();
        store.close().await;
        std::fs::remove_file(path).unwrap();
    }
}
