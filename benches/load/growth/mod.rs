//! How costs grow: a delivery with the watchers, a request and a change with the objects.

mod chart;
mod cost;
mod numbers;
mod objects;
mod watchers;

use std::path::{Path, PathBuf};

use clap::Args;

use super::fixture::Fixture;
use numbers::Numbers;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Measure how costs grow with watchers and with objects, and nothing else. Keep the numbers in this file, and draw
    /// them.
    #[arg(long, conflicts_with_all = ["record", "compare", "only_informerd"])]
    pub(crate) growth: Option<PathBuf>,
    /// Draw the numbers of this file again, and measure nothing.
    #[arg(long, conflicts_with_all = ["record", "compare", "growth"])]
    draw: Option<PathBuf>,
    /// The directory of the charts.
    #[arg(long, default_value = "docs")]
    charts: PathBuf,
    /// The numbers of watchers.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,10000")]
    growth_watchers: Vec<usize>,
    /// The numbers of threads that informerd has.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    growth_threads: Vec<usize>,
    /// The numbers of objects.
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,10000,50000")]
    growth_objects: Vec<usize>,
    /// Bytes of an object's JSON, about.
    #[arg(long, default_value_t = 2_500)]
    growth_object_bytes: usize,
}

/// What `--draw` asks for, if it is there.
pub(crate) fn draw_again(options: &Options) -> Option<anyhow::Result<()>> {
    let numbers = options.draw.as_deref()?;
    Some(Numbers::read(numbers).and_then(|numbers| draw(&numbers, &options.charts)))
}

pub(crate) async fn measure(fixture: &mut Fixture, to: &Path, options: &super::Options) -> anyhow::Result<()> {
    let mut numbers = Numbers::default();
    watchers::measure(fixture, &mut numbers, options).await?;
    objects::measure(fixture, &mut numbers, &options.growth).await?;
    numbers.write(to)?;
    draw(&numbers, &options.growth.charts)
}

fn draw(numbers: &Numbers, directory: &Path) -> anyhow::Result<()> {
    for (name, chart) in numbers.charts() {
        let path = directory.join(name);
        std::fs::write(&path, chart.svg())?;
        eprintln!("{}", path.display());
    }
    Ok(())
}
