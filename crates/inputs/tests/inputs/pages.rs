//! Small PDFs.

/// One page for each text.
pub(crate) fn pdf(pages: &[&str]) -> Vec<u8> {
    let content = |text: &&str| format!("BT /F1 12 Tf 72 700 Td ({text}) Tj ET");
    of_contents(&pages.iter().map(content).collect::<Vec<_>>())
}

/// Pages on which there are only lines.
pub(crate) fn scan(pages: usize) -> Vec<u8> {
    of_contents(&vec!["10 10 m 100 100 l S".to_owned(); pages])
}

/// Things that are nearly a PDF.
pub(crate) fn damaged() -> Vec<(String, Vec<u8>)> {
    let whole = pdf(&["Some text", "and more"]);
    let mut all = vec![
        ("nothing but the mark".to_owned(), b"%PDF-1.4\n".to_vec()),
        ("noise".to_owned(), [b"%PDF-1.4\n".as_slice(), &[0xa5; 4_000]].concat()),
        ("a cycle".to_owned(), replaced(&whole, "/Type /Pages", "/Parent 2 0 R")),
        ("no box".to_owned(), replaced(&whole, "/MediaBox [0 0 612 792]", "")),
        ("no font".to_owned(), replaced(&whole, "/Type1", "/Type0")),
        ("no base font".to_owned(), replaced(&whole, "/BaseFont /Helvetica", "")),
    ];
    let cut = (0..whole.len()).step_by(97);
    all.extend(cut.map(|at| (format!("cut at {at}"), whole[..at.max(8)].to_vec())));
    let bent = (8..whole.len()).step_by(61);
    all.extend(bent.map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        (format!("bent at {at}"), bytes)
    }));
    all
}

fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    String::from_utf8_lossy(bytes).replace(from, to).into_bytes()
}

fn of_contents(contents: &[String]) -> Vec<u8> {
    let kids: Vec<String> = (0..contents.len()).map(|n| format!("{} 0 R", 4 + 2 * n)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!(
            "<< /Type /Pages /Kids [{}] /Count {} /MediaBox [0 0 612 792] \
             /Resources << /Font << /F1 3 0 R >> >> >>",
            kids.join(" "),
            kids.len()
        ),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
    ];
    for (n, content) in contents.iter().enumerate() {
        objects.push(format!("<< /Type /Page /Parent 2 0 R /Contents {} 0 R >>", 5 + 2 * n));
        objects.push(format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()));
    }
    let mut out = b"%PDF-1.4\n".to_vec();
    let mut places = Vec::new();
    for (n, object) in objects.iter().enumerate() {
        places.push(out.len());
        out.extend(format!("{} 0 obj\n{object}\nendobj\n", n + 1).bytes());
    }
    let table = out.len();
    out.extend(format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).bytes());
    for place in places {
        out.extend(format!("{place:010} 00000 n \n").bytes());
    }
    let size = objects.len() + 1;
    out.extend(format!("trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n").bytes());
    out
}
