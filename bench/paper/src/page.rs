//! The report as one HTML page, with all that it needs in it.

use anyhow::Result;
use farcall_bench_method::paper::{About, Entry, Item, Table, Whose};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{Chapter, Report, plot};

const STYLE: &str = include_str!("page.css");

/// Returns the page.
///
/// # Errors
/// When a picture cannot be drawn.
pub fn page(report: &Report) -> Result<String> {
    let mut chapters = Vec::new();
    for chapter in &report.papers {
        chapters.push(self::chapter(chapter)?);
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Five papers about remote calls, measured again" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Five papers about remote calls, measured again" }
                (introduction(report))
                nav aria-label="Tables and figures" { @for chapter in &report.papers { (contents(chapter)) } }
                @for chapter in &chapters { (chapter) }
            }
        }
    };
    Ok(page.into_string())
}

fn introduction(report: &Report) -> Markup {
    html! {
        p {
            "Each table has the paper's figures, those that one machine gives today by farcall and by the \
             programs that the paper compared, and how many times the old figure is the new one. All figures \
             of this page come from one run of one command, which took " (report.minutes) " minutes. A figure is missing only where it says why."
        }
        @if report.quick {
            p.void { "This was a quick run, with few and short blocks: its figures are a first impression." }
        }
        (conditions("Machine", &report.conditions))
    }
}

fn contents(chapter: &Chapter) -> Markup {
    html! {
        p { a href=(format!("#{}", chapter.paper.key)) { (chapter.paper.authors) ", " (chapter.paper.year) } }
        ul { @for about in first_of_each(chapter) { li { a href=(format!("#{}", anchor(chapter, about))) { (about.number) } } } }
    }
}

/// Returns what stands around the tables and figures: of those that have the same number, the first.
fn first_of_each(chapter: &Chapter) -> Vec<&About> {
    let mut all: Vec<&About> = chapter.items.iter().map(Item::about).collect();
    all.dedup_by_key(|about| about.number.as_str());
    all
}

fn chapter(chapter: &Chapter) -> Result<Markup> {
    let mut sections = Vec::new();
    for item in &chapter.items {
        sections.push(section(chapter, item)?);
    }
    let paper = chapter.paper;
    Ok(html! {
        h2 id=(paper.key) { (paper.authors) ": " cite { (paper.title) } }
        p { (paper.published) }
        p { (paper.about) }
        @for failure in &chapter.failures { p.void { "Failed: " (failure) } }
        @for section in &sections { (section) }
    })
}

fn section(chapter: &Chapter, item: &Item) -> Result<Markup> {
    let about = item.about();
    let shown = match item {
        Item::Table(table) => self::table(table),
        Item::Curves(curves) => {
            let drawn = curves.panels.iter().map(|panel| plot::curves(&curves.axes, panel));
            pictures(drawn.collect::<Result<_>>()?)
        }
        Item::Bars(bars) => pictures(bars.panels.iter().map(plot::bars).collect::<Result<_>>()?),
    };
    Ok(html! {
        section id=(anchor(chapter, about)) {
            h3 { (about.number) ". " (about.caption) }
            @for why in &about.void { p.void { "Void: " (why) } }
            (shown)
            @if !about.finding.is_empty() { p { (about.finding) } }
            @if !about.changed.is_empty() { p { "Changed: " (about.changed) } }
            (conditions("Conditions", &about.conditions))
        }
    })
}

/// Returns the name by which links find a table or a figure.
fn anchor(chapter: &Chapter, about: &About) -> String {
    let name = format!("{} {} {}", chapter.paper.key, about.number, about.caption);
    let plain = name.to_lowercase().replace(|each: char| !each.is_ascii_alphanumeric(), "-");
    plain.split('-').filter(|word| !word.is_empty()).take(12).collect::<Vec<_>>().join("-")
}

fn conditions(name: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            details { summary { (name) } @for line in lines { div { (line) } } }
        }
    }
}

fn pictures(pictures: Vec<String>) -> Markup {
    html! { div.pictures tabindex="0" { @for picture in &pictures { (PreEscaped(picture)) } } }
}

fn table(table: &Table) -> Markup {
    let kinds: Vec<Whose> =
        table.groups.iter().flat_map(|group| group.columns.iter().map(|_| group.whose)).collect();
    html! {
        div.wide tabindex="0" role="region" aria-label=(table.about.number) {
            table {
                thead {
                    tr {
                        @for group in &table.groups {
                            th class=(class(group.whose)) colspan=(group.columns.len()) { (group.name) }
                        }
                    }
                    tr {
                        @for group in &table.groups {
                            @for column in &group.columns { th class=(class(group.whose)) scope="col" { (column) } }
                        }
                    }
                }
                tbody {
                    @for line in &table.lines {
                        tr { @for (entry, whose) in line.iter().zip(&kinds) { (cell(entry, *whose)) } }
                    }
                }
            }
        }
    }
}

fn cell(entry: &Entry, whose: Whose) -> Markup {
    html! {
        td class=(class(whose)) {
            @match &entry.missing {
                Some(why) => abbr title=(why) { (entry.text) },
                None => (entry.text),
            }
        }
    }
}

fn class(whose: Whose) -> &'static str {
    match whose {
        Whose::Head => "name",
        Whose::Paper => "paper",
        Whose::Now => "now",
        Whose::Ratio => "ratio",
    }
}
