//! The committed list of statements and cases is what the cases say.

use ferroce_conformance::list;

#[test]
fn cases_and_statements_fit() {
    assert_eq!(list::mistakes(), Vec::<String>::new());
}

#[test]
fn the_committed_list_is_up_to_date() {
    let (file, should) = (list::file(), list::render());
    if std::env::var_os(list::UPDATE).is_some() {
        std::fs::write(&file, should).expect("written");
        return;
    }
    let is = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        is == should,
        "{} is out of date: {}=1 cargo test -p ferroce-conformance --test list",
        file.display(),
        list::UPDATE
    );
}
