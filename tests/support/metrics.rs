//! What an exposition of Prometheus says.

/// The numbers of a metric's series that have all of this in their labels.
pub(crate) fn series(text: &str, name: &str, labels: &[&str]) -> Vec<f64> {
    let is =
        |line: &&str| line.split(['{', ' ']).next() == Some(name) && labels.iter().all(|label| line.contains(label));
    text.lines().filter(is).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

pub(crate) fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    series(text, name, labels).iter().sum()
}

/// The number of the one series that has all of this in its labels.
pub(crate) fn only(text: &str, name: &str, labels: &[&str]) -> f64 {
    let [number] = series(text, name, labels)[..] else { panic!("not one {name} {labels:?} in {text}") };
    number
}
