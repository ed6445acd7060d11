"""Score rows in batches: a pandas UDF that loads a model once and predicts whole columns."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.expressions import col
from millstream.table.udf import ScalarFunction, udf


class LinearModel:
    """Stand in for a model of scikit-learn, XGBoost or PyTorch."""

    def __init__(self, path):
        self.weights = np.load(path)

    def predict(self, features):
        return features @ self.weights[:-1] + self.weights[-1]

    @staticmethod
    def train(features, target, path):
        with_ones = np.column_stack([features, np.ones(len(features))])
        np.save(path, np.linalg.lstsq(with_ones, target, rcond=None)[0])


class Rent(ScalarFunction):
    def __init__(self, path):
        self.path = path

    def open(self, function_context):
        self.model = LinearModel(self.path)

    def eval(self, area, rooms):  # pandas.Series of a whole batch
        return pd.Series(self.model.predict(np.column_stack([area, rooms])).round())


with tempfile.TemporaryDirectory() as directory:
    path = Path(directory, "model.npy")
    LinearModel.train([[30, 1], [50, 2], [70, 2], [90, 4]], [600, 900, 1100, 1500], path)

    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.get_config().set("parallelism.default", "1")
    rent = udf(Rent(path), result_type=DataTypes.DOUBLE(), func_type="pandas")
    flats = env.from_elements(
        [("Elm Street", 40, 1), ("Oak Lane", 80, 3)], ["flat", "area", "rooms"]
    )
    flats.select(col("flat"), rent(col("area"), col("rooms")).alias("rent")).execute().print()
