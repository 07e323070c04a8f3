//! Whether both servers said the same, apart from what time alone changes: the ages in tables, and the revision of a list.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::Value;

use super::session::{Program, Session, Side};

/// A read, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) program: &'static Program,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
}

/// Digests of the answers to each question.
#[derive(Default)]
pub(crate) struct Answers {
    noted: Mutex<BTreeMap<String, Noted>>,
}

struct Noted {
    question: Question,
    digests: BTreeSet<u64>,
    /// The last answers: most are byte for byte like one of these. Unpacking and comparing the others takes time that the
    /// servers would have.
    recent: VecDeque<Answer>,
}

/// An answer, as it came and unpacked.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) sent: Bytes,
    pub(crate) body: Bytes,
}

/// Answers of one question that are kept: the pages of a list count as one.
const RECENT: usize = 4;

/// Columns of tables that tell how long ago something was.
const AGES: [&str; 3] = ["Age", "Last Seen", "First Seen"];

// === impl Question ===

impl Question {
    fn key(&self) -> String {
        // A token differs from run to run.
        let page = self.path.split("&continue=").next().unwrap_or_default();
        let pages = if page.len() == self.path.len() { "first page" } else { "further page" };
        format!("{page} {} {pages}", self.accept)
    }
}

// === impl Answers ===

impl Answers {
    /// The body of an answer that is already noted.
    pub(crate) fn again(&self, question: &Question, status: StatusCode, sent: &Bytes) -> Option<Bytes> {
        let noted = self.noted.lock();
        let mut recent = noted.get(&question.key())?.recent.iter();
        recent.find(|answer| answer.status == status && answer.sent == *sent).map(|answer| answer.body.clone())
    }

    pub(crate) fn note(&self, question: Question, answer: Answer) {
        let digest = digest(answer.status, &answer.body);
        let mut noted = self.noted.lock();
        let noted = noted.entry(question.key()).or_insert_with(|| Noted {
            question,
            digests: BTreeSet::new(),
            recent: VecDeque::new(),
        });
        noted.digests.insert(digest);
        noted.recent.truncate(RECENT - 1);
        noted.recent.push_front(answer);
    }

    /// What was answered here and never there.
    pub(crate) fn unlike(&self, other: &Self) -> Vec<String> {
        let (noted, other) = (self.noted.lock(), other.noted.lock());
        let known =
            |key: &String, noted: &Noted| other.get(key).is_some_and(|other| other.digests.is_superset(&noted.digests));
        noted.iter().filter(|(key, noted)| !known(key, noted)).map(|(key, _)| key.clone()).collect()
    }

    fn questions(&self) -> Vec<Question> {
        let questions: Vec<_> = self.noted.lock().values().map(|noted| noted.question.clone()).collect();
        questions.into_iter().filter(|question| !question.path.contains("&continue=")).collect()
    }
}

/// Asks both once more, while nothing changes, and tells how many questions there were and which answers differ.
pub(crate) async fn compare(one: &Arc<Side>, other: &Arc<Side>) -> anyhow::Result<(usize, Vec<String>)> {
    let questions = other.answers.questions();
    let mut unlike = Vec::new();
    for question in &questions {
        let mut digests = Vec::new();
        for side in [one, other] {
            let mut session = Session::open(side, question.program).await?;
            let (status, body) = session.ask(&question.path, question.accept).await?;
            digests.push(digest(status, &body));
        }
        if digests[0] != digests[1] {
            unlike.push(format!("{} {} at rest", question.path, question.accept));
        }
    }
    Ok((questions.len(), unlike))
}

fn digest(status: StatusCode, body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    status.hash(&mut hasher);
    let head = &body[..body.len().min(200)];
    let has = |text: &[u8]| memchr::memmem::find(head, text).is_some();
    if has(br#""kind":"Table""#) {
        table(body).hash(&mut hasher);
    } else if has(b"k8s\0") && has(b"List") {
        // The revision stands there in its own length. What is behind it is compared by the tests of the encoding.
        body.len().hash(&mut hasher);
    } else if has(b"List\"") {
        let (head, rest) = body.split_at(memchr::memmem::find(body, br#""items""#).unwrap_or(0));
        let head = String::from_utf8_lossy(head);
        let fields = head.split('"').filter(|text| text.parse::<u64>().is_err() && text.len() < 60);
        fields.collect::<Vec<_>>().hash(&mut hasher);
        rest.hash(&mut hasher);
    } else {
        body.hash(&mut hasher);
    }
    hasher.finish()
}

/// Without its ages, its revision and its token.
fn table(body: &[u8]) -> String {
    let mut table: Value = serde_json::from_slice(body).unwrap_or_default();
    let columns = table["columnDefinitions"].as_array().map_or(&[][..], |columns| columns);
    let ages: Vec<usize> = columns
        .iter()
        .enumerate()
        .filter(|(_, column)| column["name"].as_str().is_some_and(|name| AGES.contains(&name)))
        .map(|(index, _)| index)
        .collect();
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        for index in &ages {
            row["cells"][*index] = Value::Null;
        }
    }
    table["metadata"]["resourceVersion"] = Value::Null;
    table["metadata"]["continue"] = Value::Null;
    table.to_string()
}
