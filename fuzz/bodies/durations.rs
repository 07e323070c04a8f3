//! How long ago something was, as a cell says it: three numbers of eight bytes, the moments of the object, of the print and
//! of the reader.

use informerd::codec::json::Style;
use informerd::codec::table::{Columns, Include, Printed, TableShape};
use informerd::codec::{Form, ListDecoder, Shape};
use informerd::meta::{Encoding, Moment};

use super::json::Json;
use super::pods::{bytes, resource, table};

const COLUMNS: &str = r#"[{"name":"Name","type":"string"},{"name":"Age","type":"string"}]"#;

pub fn check(data: &[u8]) {
    let number = |at: usize| data.get(at..at + 8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap_or_default()));
    let (Some(created), Some(age), Some(after)) = (number(0), number(8), number(16)) else { return };
    // Any second of the years 0 to 9999, written by another library.
    let created = created.rem_euclid(315_569_520_000) - 62_167_219_200;
    let Ok(written) = jiff::Timestamp::from_second(created) else { return };
    let Some(moment) = Moment::parse(&written.to_string()) else {
        assert!(!(0..=9999).contains(&written.to_zoned(jiff::tz::TimeZone::UTC).year()), "{written} is a time");
        return;
    };
    // Some ages are short, most are not.
    let (age, after) = (age >> (age & 63), after >> (after & 63));
    let printed = moment.plus(age);
    let form = form(&written.to_string(), moment, printed);
    let Some((form, object)) = form else { return };
    let now = moment.plus(after);
    let shape = TableShape { include: Include::None, now, ..TableShape::default() };
    let row = Json::read(&bytes(form.list_item(&object, Shape::Table(shape), true))).expect("a row");
    let Some(Json::Array(cells)) = row.get("cells") else { panic!("no cells") };
    let nanos = now.since(moment);
    assert_eq!(cells[1].text(), Some(&*said(nanos)), "of {nanos}");
}

/// A row that was printed at this moment.
fn form(written: &str, moment: Moment, printed: Moment) -> Option<(Form, informerd::meta::Object)> {
    let columns = Columns::new(resource(), &COLUMNS.into()).expect("columns");
    let cell = said(printed.since(moment)).replace('<', "\\u003c").replace('>', "\\u003e");
    let row = format!(
        r#"{{"kind":"Table","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"rows":[{{"cells":["a","{cell}"],"object":{{"metadata":{{"name":"a","resourceVersion":"5","creationTimestamp":"{written}"}}}}}}]}}"#
    );
    let mut decoder = ListDecoder::new(Encoding::Table, row.len(), table().clone());
    decoder.push(row.into());
    let (mut object, _) = decoder.next().expect("a row").expect("a row");
    if moment.is_zero() {
        return None;
    }
    let resolved = columns.resolve(&mut object, Printed { earliest: printed, latest: printed });
    assert_eq!(resolved, Ok(()), "{cell} is what is said of {written} at {printed:?}");
    let form = Form::new(Encoding::Table, Style::Stripped, "v1", "Pod", "PodList");
    Some((form.with_columns(std::sync::Arc::new(columns)), object))
}

const UNITS: [(char, i64); 5] = [('y', 365 * 86_400), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// The largest duration that is said, and how it is said: in units up to this one, down to that one.
const FORMS: [(i64, char, char); 8] = [
    (120, 's', 's'),
    (600, 'm', 's'),
    (3 * 3600, 'm', 'm'),
    (8 * 3600, 'h', 'm'),
    (48 * 3600, 'h', 'h'),
    (8 * 86_400, 'd', 'h'),
    (2 * 365 * 86_400, 'd', 'd'),
    (8 * 365 * 86_400, 'y', 'd'),
];

fn said(nanos: i64) -> String {
    let seconds = nanos / 1_000_000_000;
    if seconds < 0 {
        return if seconds < -1 { "<invalid>" } else { "0s" }.to_owned();
    }
    let (_, first, last) = FORMS.into_iter().find(|(below, ..)| seconds < *below).unwrap_or((0, 'y', 'y'));
    let (mut out, mut rest) = (String::new(), seconds);
    for (unit, size) in UNITS.into_iter().skip_while(|(unit, _)| *unit != first) {
        let count = rest / size;
        rest %= size;
        if count > 0 || unit == first {
            out += &format!("{count}{unit}");
        }
        if unit == last {
            break;
        }
    }
    out
}
