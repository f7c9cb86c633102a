"""Sparse and Arrow tables given to estimators: sound ones in every format, others refused unread."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from raresight.common.tables import known_table

RANDOM = np.random.default_rng(0)
Y = (np.arange(400) % 10 == 0).astype(int)
DENSE = np.where(RANDOM.random((400, 6)) < 0.5, 0, RANDOM.normal(size=(400, 6)) + 2 * Y[:, None])


def changed(kind="csr_matrix", **attributes):
    """A matrix of which an attribute is another one, or has another value at a place."""
    X = getattr(sparse, kind)(DENSE)
    for name, change in attributes.items():
        if isinstance(change, tuple):
            getattr(X, name)[change[0]] = change[1]
        else:
            setattr(X, name, getattr(X, name)[change])
    return X


WRONG = {
    "index": lambda: changed(indices=(3, 10**6)),
    "negative index": lambda: changed(indices=(3, -7)),
    "index of an array": lambda: changed("csr_array", indices=(3, 6)),
    "negative start": lambda: changed(indptr=(5, -4)),
    "falling start": lambda: changed(indptr=(5, 10**7)),
    "first start": lambda: changed(indptr=(0, 1)),
    "no number by the last start": lambda: changed(indptr=(-1, 0)),
    "short data": lambda: changed(data=slice(-50)),
    "short indices": lambda: changed(indices=slice(-50)),
    "short starts": lambda: changed(indptr=slice(-50)),
    "index by columns": lambda: changed("csc_matrix", indices=(3, 10**6)),
    "index of blocks": lambda: changed("bsr_matrix", indices=(3, 10**6)),
    "row of triples": lambda: changed("coo_matrix", row=(3, 10**6)),
    "column of triples": lambda: changed("coo_matrix", col=(3, -1)),
    "short triples": lambda: changed("coo_matrix", data=slice(-50)),
    "row of lists": lambda: changed("lil_matrix", rows=(3, [10**6]), data=(3, [1.0])),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_index_that_leads_out_of_the_matrix_is_refused(wrong):
    with pytest.raises(ValueError, match=r"X is no sound sparse matrix of the shape \(400, 6\): "):
        known_table(WRONG[wrong]())


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
@pytest.mark.parametrize("what", ["matrix", "array"])
def test_every_sound_format_is_read(kind, what):
    X = getattr(sparse, f"{kind}_{what}")(DENSE[:50])
    read = known_table(X)
    assert read.format == "csr"
    np.testing.assert_array_equal(read.toarray(), DENSE[:50])
    assert known_table(read) is read
    assert known_table(sparse.csr_matrix((0, 3))).shape == (0, 3)


def test_numbers_at_one_place_are_summed_and_the_matrix_stays_as_it_is():
    once = sparse.csr_matrix(DENSE)
    twice = sparse.csr_matrix((np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), once.indptr * 2))
    read = known_table(twice)
    assert (read != once).nnz == 0
    assert (twice.nnz, read.nnz) == (2 * once.nnz, once.nnz)


@pytest.mark.parametrize("wrong", ["index", "negative start", "index by columns"])
@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "linear"])
def test_estimators_refuse_it_in_fits_and_in_predictions(name, wrong):
    if name == "linear":
        from raresight.linear import LinearClassifier

        estimator = LinearClassifier()
    else:
        pytest.importorskip(name)
        from raresight import boosting

        kind = boosting.XGBoostClassifier if name == "xgboost" else boosting.LightGBMClassifier
        estimator = kind(n_estimators=2)
    with pytest.raises(ValueError, match="X is no sound sparse matrix"):
        estimator.fit(WRONG[wrong](), Y)
    estimator.fit(sparse.csr_matrix(DENSE), Y)
    with pytest.raises(ValueError, match="X is no sound sparse matrix"):
        estimator.predict_proba(WRONG[wrong]())
    twice = sparse.csr_matrix(DENSE / 2)
    twice = sparse.csr_matrix((np.repeat(twice.data, 2), np.repeat(twice.indices, 2), twice.indptr * 2))
    expected = estimator.predict_proba(sparse.csr_matrix(DENSE))
    np.testing.assert_array_equal(estimator.predict_proba(twice), expected)


def test_damaged_arrow_tables_are_refused_with_their_column():
    pa = pytest.importorskip("pyarrow")
    wrong = pa.DictionaryArray.from_arrays(pa.array([0, 10**6]), pa.array(["a", "b"]), safe=False)
    table = pa.table({"x": [1.0, 2.0], "shop": wrong})
    for given in (table, table.to_batches()[0]):
        with pytest.raises(
            ValueError, match="X is damaged: column 'shop' holds offsets or indices out of range"
        ):
            known_table(given)
