// Package text finds by words: it says what the words of a text are, in any script
// (Fold, Words), and keeps on disk which documents have which (Store). It is the only
// importer of bleve.
//
// A Store maps terms to the IDs of documents, and no more: it counts, ranks and
// filters nothing, keeps no text, and interprets none. There is no query language;
// what is looked for are terms that Words made. A term may stand for more than the
// word that it came from, so whoever asks judges the texts of what is found.
//
// It is derived data. A store that is damaged, or of another version, is dropped when
// it is opened, and starts empty.
package text
