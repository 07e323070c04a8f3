//! The columns of the tables that are read, for each way in which a cell says a time. The first byte of an input chooses.

use std::sync::{Arc, LazyLock};

use informerd::codec::Form;
use informerd::codec::json::Style;
use informerd::codec::table::Columns;
use informerd::meta::{Encoding, Gvr, Origin, PrinterColumn, Resource, Verbs};

/// A group, a resource, and its columns: a name, a text, two times, and one that nobody knows.
type Printer = (&'static str, &'static str, [&'static str; 5]);

const PRINTERS: [Printer; 7] = [
    ("", "pods", ["Name", "Ready", "Restarts", "Age", "New"]),
    ("", "events", ["Name", "Reason", "Last Seen", "First Seen", "New"]),
    ("batch", "jobs", ["Name", "Completions", "Duration", "Age", "New"]),
    ("batch", "cronjobs", ["Name", "Schedule", "Last Schedule", "Age", "New"]),
    ("resource.k8s.io", "devicetaintrules", ["Name", "Effect", "TimeAdded", "Age", "New"]),
    ("resource.k8s.io", "resourcepoolstatusrequests", ["Name", "Pool", "Completed", "Age", "New"]),
    (DEFINED, "crontabs", ["Name", "Spec", "Since", "Age", "New"]),
];

/// The group of a resource with a definition, which says what its columns are.
const DEFINED: &str = "stable.example.com";

static FORMS: LazyLock<Vec<Arc<Form>>> = LazyLock::new(|| PRINTERS.iter().map(of).collect());

/// The form of the rows of one of them.
pub fn form(first: u8) -> &'static Arc<Form> {
    &FORMS[usize::from(first) % FORMS.len()]
}

fn of((group, resource, names): &Printer) -> Arc<Form> {
    let column = |name: &&str| {
        let (kind, json_path) = match *name {
            "Since" => ("date", ".spec.since"),
            "Age" => ("date", ".metadata.creationTimestamp"),
            _ => ("string", ".spec.cron"),
        };
        PrinterColumn { name: (*name).into(), kind: kind.into(), json_path: json_path.into() }
    };
    let asked: Vec<_> = names.iter().map(column).collect();
    let told = |column: &PrinterColumn| format!(r#"{{"name":"{}","type":"{}"}}"#, column.name, column.kind);
    let definitions = format!("[{}]", asked.iter().map(told).collect::<Vec<_>>().join(","));
    let origin = if *group == DEFINED {
        // Each definition has the name in front of its own columns.
        Origin::Custom { selectable: [].into(), columns: Arc::from(&asked[1..]), definition: "".into() }
    } else {
        Origin::BuiltIn
    };
    let gvr = Gvr::new(group, "v1", resource);
    let resource = Resource { gvr, kind: "Pod".into(), namespaced: true, verbs: Verbs::default(), origin };
    let columns = Columns::new(&resource, &definitions.into()).expect("columns");
    Arc::new(Form::new(Encoding::Table, Style::Stripped, "v1", "Pod", "PodList").with_columns(Arc::new(columns)))
}
